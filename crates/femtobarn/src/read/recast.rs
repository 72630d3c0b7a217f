//! Reading a container's objects as another version of their class.
//!
//! A new version of a class is a new header over the same pages. A view as another version has such a header in
//! memory: the bytes that a commit would have written appear at offsets past the end of all files, and all
//! other bytes are read from the container's file.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rntuple::{BlobSink, ByteSource, ReadRequest, Reader};

use crate::ContainerOptions;
use crate::error::{Error, Result};
use crate::evolve::evolution::Evolution;
use crate::evolve::narrowing::Narrowing;
use crate::read::version::OpenVersion;
use crate::read::view::View;
use crate::schema::class::Class;
use femtobarn_format::link;

/// The offset at which memory begins: past the end of any file.
const MEMORY_START: u64 = 1 << 62;
/// Blobs start at multiples of this, so that numbers in them are aligned.
const ALIGNMENT: usize = 8;
/// The file numbers of overlays, by which caches know them, have this bit.
const IN_MEMORY: u64 = 1 << 63;

impl View {
    /// A view of the same objects as another version of their class, newer or older. If an older version cannot
    /// hold all values, reading a value that it cannot hold is [`Error::Invalid`]. Indexes and statistics are
    /// those of the stored version, and are not used. This reads the page lists, and takes memory for fields
    /// whose pages cannot be used as they are.
    ///
    /// # Errors
    /// [`ErrorKind`](crate::ErrorKind): `NotFound` if the version does not exist; `Invalid` if a field cannot
    /// be converted.
    pub fn as_class(&self, version: u32) -> Result<View> {
        self.snapshot().kept(self.converted(version))
    }

    fn converted(&self, version: u32) -> Result<View> {
        if let Some(original) = &self.opened_version().original {
            return View::new(self.snapshot().clone(), original.clone()).as_class(version);
        }
        if version == self.class().version {
            return Ok(self.clone());
        }
        let catalog = self.snapshot().federation().catalog();
        let own = self.class();
        let wanted = Class::from_json(&catalog.class(&own.name, Some(version))?.definition)?;
        let evolution = if version > own.version {
            wanted.evolution_over(&self.older_versions(&wanted, own)?)?
        } else {
            let older = self.older_versions(own, &wanted)?;
            match own.regression_over(&older) {
                Ok(evolution) => evolution,
                Err(_) => {
                    let narrowing = Narrowing { members: own.narrowing_over(&older)? };
                    return self.recast(wanted, self.own_reader()?, Some(narrowing));
                }
            }
        };
        let reader = self.evolved_reader(&evolution)?;
        self.recast(wanted, reader, None)
    }

    /// The versions of a class from the one before `newer` to `older`, the newest first.
    fn older_versions(&self, newer: &Class, older: &Class) -> Result<Vec<Class>> {
        let mut between = vec![];
        for row in self.snapshot().federation().catalog().classes()? {
            if row.name == newer.name && older.version < row.version && row.version < newer.version
            {
                between.push(Class::from_json(&row.definition)?);
            }
        }
        between.sort_by_key(|class| std::cmp::Reverse(class.version));
        between.push(older.clone());
        Ok(between)
    }

    /// A reader of the objects after an evolution, without writing it.
    fn evolved_reader(&self, evolution: &Evolution) -> Result<Reader> {
        let version = self.opened_version();
        let mut sink = MemorySink::default();
        let options = ContainerOptions::from_json(&self.container().options)?;
        let options = options.write_options();
        let evolved = rntuple::evolve(&version.reader, &mut sink, &evolution.members, options);
        let evolved = evolved.map_err(Error::storage(self.path()))?;
        let source = Overlay { file: version.source.clone(), memory: sink.0 };
        static NUMBERS: AtomicU64 = AtomicU64::new(IN_MEMORY);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let pages = self.snapshot().federation().inner.pages.clone();
        let reader = Reader::from_links(Arc::new(source), &evolved.header, &evolved.footer);
        Ok(reader.map_err(Error::storage(self.path()))?.with_cache(pages, number))
    }

    /// A reader of the stored objects, for the recast view.
    fn own_reader(&self) -> Result<Reader> {
        let OpenVersion { row, source, .. } = self.opened_version();
        let reader = Reader::from_links(source.clone(), &link(&row.header), &link(&row.footer));
        reader.map_err(Error::storage(self.path()))
    }
}

/// Receives blobs at offsets from [`MEMORY_START`] on.
#[derive(Default)]
struct MemorySink(Vec<u8>);

impl BlobSink for MemorySink {
    fn write_blob(&mut self, parts: &[&[u8]]) -> rntuple::Result<u64> {
        let offset = self.0.len().next_multiple_of(ALIGNMENT);
        self.0.resize(offset, 0);
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
        Ok(MEMORY_START + offset as u64)
    }
}

/// A file, followed at [`MEMORY_START`] by bytes in memory.
struct Overlay {
    file: Arc<dyn ByteSource>,
    memory: Vec<u8>,
}

impl ByteSource for Overlay {
    fn size(&self) -> rntuple::Result<u64> {
        Ok(MEMORY_START + self.memory.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> rntuple::Result<()> {
        let Some(offset) = offset.checked_sub(MEMORY_START) else {
            return self.file.read_at(offset, buffer);
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = self.memory.get(start..).and_then(|rest| rest.get(..buffer.len()));
        let bytes = bytes.ok_or_else(|| rntuple::Error::Io {
            what: "cannot read past the end of an overlay".to_owned(),
            source: std::io::ErrorKind::UnexpectedEof.into(),
        })?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        if requests.iter().all(|request| request.offset < MEMORY_START) {
            self.file.read_many(requests)
        } else {
            requests.iter_mut().try_for_each(|request| self.read_at(request.offset, request.buffer))
        }
    }

    fn read_past_caches(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        let (mut in_file, mut in_memory): (Vec<_>, Vec<_>) = requests
            .iter_mut()
            .map(|ReadRequest { offset, buffer }| ReadRequest { offset: *offset, buffer })
            .partition(|request| request.offset < MEMORY_START);
        self.file.read_past_caches(&mut in_file)?;
        self.read_many(&mut in_memory)
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        self.file.will_need(&in_file(ranges));
    }

    fn may_need(&self, ranges: &[Range<u64>]) {
        self.file.may_need(&in_file(ranges));
    }

    fn is_remote(&self) -> bool {
        self.file.is_remote()
    }
}

/// The ranges that lie in the file.
fn in_file(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    ranges.iter().filter(|range| range.end <= MEMORY_START).cloned().collect()
}
