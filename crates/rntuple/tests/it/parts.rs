//! An RNTuple in parts, for tests that change its metadata.

use rntuple::{
    Anchor, Appender, BlobSink, EnvelopeKind, EnvelopeLink, Footer, Header, Locator, PageList,
    Reader, Result, Type, Value, read_envelope,
};

use crate::round_trips::members_of;
use crate::values::array_of;

/// Entries read at either end.
const ENTRIES_MAX: u64 = 50;

/// An RNTuple whose metadata can be changed one by one before it is written again.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub blobs: Vec<u8>,
    pub header: Header,
    pub footer: Footer,
    pub page_lists: Vec<PageList>,
}

impl BlobSink for Parts {
    fn write_blob(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let offset = self.blobs.len() as u64;
        parts.iter().for_each(|part| self.blobs.extend_from_slice(part));
        Ok(offset)
    }
}

impl Parts {
    pub(crate) fn of(of: &Type, rows: &[Value], options: rntuple::WriteOptions) -> Self {
        let mut parts = Parts {
            blobs: vec![0; 100],
            header: Header::default(),
            footer: Footer::default(),
            page_lists: vec![],
        };
        let (mut appender, header) =
            Appender::create(&mut parts, "t", members_of(of), options).unwrap();
        appender.append(&mut parts, &array_of(of, rows)).unwrap();
        let version = appender.finish_version(&mut parts, &Vec::new()).unwrap();
        let read =
            |link: &EnvelopeLink, kind| read_envelope(&parts.blobs, link, kind, u64::MAX).unwrap();
        let header = Header::decode(&read(&header, EnvelopeKind::Header)).unwrap().0;
        let footer = Footer::decode(&read(&version.footer, EnvelopeKind::Footer)).unwrap();
        let list = |group: &rntuple::ClusterGroup| {
            PageList::decode(&read(&group.page_list, EnvelopeKind::PageList)).unwrap()
        };
        let page_lists = footer.cluster_groups.iter().map(list).collect();
        Parts { header, footer, page_lists, ..parts }
    }

    /// Writes the metadata with right checksums; returns their anchor.
    pub(crate) fn anchor(&mut self) -> Anchor {
        let header = self.header.encode();
        let checksum = rntuple::envelope_checksum(&header);
        for at in 0..self.page_lists.len() {
            self.page_lists[at].header_checksum = checksum;
            let list = self.page_lists[at].encode();
            self.footer.cluster_groups[at].page_list = self.write(&list);
        }
        self.footer.header_checksum = checksum;
        let footer = self.footer.encode();
        Anchor::new(self.write(&header), self.write(&footer))
    }

    fn write(&mut self, envelope: &[u8]) -> EnvelopeLink {
        let offset = self.write_blob(&[envelope]).unwrap();
        let size = envelope.len() as u64;
        EnvelopeLink { length: size, locator: Locator { offset, size } }
    }

    /// The anchor and the envelopes alone, for a file in which the pages follow the envelopes.
    pub(crate) fn metadata(mut self) -> (Anchor, Vec<u8>) {
        self.blobs = vec![0; 100];
        let mut draft = self.clone();
        draft.anchor();
        // Offsets have a fixed size, so the envelopes keep their length with the right ones.
        let clusters = self.page_lists.iter_mut().flat_map(|list| &mut list.clusters);
        let columns = clusters.flat_map(|cluster| &mut cluster.columns);
        for page in columns.flat_map(|column| &mut column.pages) {
            page.locator.offset += draft.blobs.len() as u64;
        }
        let anchor = self.anchor();
        assert_eq!(self.blobs.len(), draft.blobs.len());
        (anchor, self.blobs)
    }
}

/// Reads the first and last entries of all fields, as arrays and as values.
pub(crate) fn read_all(reader: &Reader) {
    let entries = reader.entries();
    let all = reader.select_all();
    for range in [
        0..entries.min(ENTRIES_MAX),
        entries.saturating_sub(ENTRIES_MAX)..entries,
        0..entries.min(1),
    ] {
        let Ok(array) = reader.read(&all, range) else { continue };
        (0..array.len()).for_each(|at| drop(array.value(at)));
    }
}
