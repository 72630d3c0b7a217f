//! Seeing a container's objects as of another version of their class.
//!
//! A new version of a class is a new header over the same pages. Seen through another version than it
//! has, a container gets such a header in memory: what a commit would have written lies behind the end
//! of all files, and everything else is read from the container's own.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rntuple::{BlobSink, ByteSource, ReadRequest, Reader};

use crate::ContainerOptions;
use crate::error::{Error, Result};
use crate::evolve::evolution::Evolution;
use crate::evolve::narrowing::Narrowing;
use crate::read::version::Version;
use crate::read::view::View;
use crate::schema::class::Class;
use femtobarn_format::link;

/// Where memory begins: behind the end of any file, with room for all that is in memory.
const MEMORY_START: u64 = 1 << 62;
/// Blobs start at multiples of this, so that numbers in them are aligned.
const ALIGNMENT: usize = 8;
/// Numbers of files that are only in memory in part have this bit.
const IN_MEMORY: u64 = 1 << 63;

impl View {
    /// The same objects, as objects of another version of their class: old data as a newer one has
    /// them, and new data as an older one had them. If the older one does not hold all values, reading
    /// those that it cannot hold is `Invalid`, and names the first of them. Indexes and statistics
    /// are those of the version that the objects have, and are not used. It takes the time to read
    /// where the pages are, and memory for fields whose pages cannot be used.
    ///
    /// # Errors
    /// `NotFound` if there is no such version; `Invalid` that names the field and the reason if the
    /// objects cannot become such.
    pub fn as_class(&self, version: u32) -> Result<View> {
        if let Some(original) = &self.opened_version().original {
            return View::new(self.snapshot().clone(), original.clone()).as_class(version);
        }
        if version == self.class().version {
            return Ok(self.clone());
        }
        let catalog = self.snapshot().federation().catalog();
        let own = self.class();
        let wanted = Class::from_json(&catalog.class(&own.name, Some(version))?.definition)?;
        let evolution = match version > own.version {
            true => wanted.evolution_over(&self.older_versions(&wanted, own)?)?,
            false => {
                let older = self.older_versions(own, &wanted)?;
                match own.regression_over(&older) {
                    Ok(evolution) => evolution,
                    Err(_) => {
                        let narrowing = Narrowing { members: own.narrowing_over(&older)? };
                        return self.recast(wanted, self.own_reader()?, Some(narrowing));
                    }
                }
            }
        };
        let reader = self.evolved_reader(&evolution)?;
        self.recast(wanted, reader, None)
    }

    /// Versions of a class before `newer`, down to `older`, the newest first.
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

    /// A reader of the objects as they would be stored as objects of the other class.
    fn evolved_reader(&self, evolution: &Evolution) -> Result<Reader> {
        let version = self.opened_version();
        let mut sink = Memory::default();
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

    /// Another reader of the objects as they are stored.
    fn own_reader(&self) -> Result<Reader> {
        let Version { row, source, .. } = self.opened_version();
        let reader = Reader::from_links(source.clone(), &link(&row.header), &link(&row.footer));
        reader.map_err(Error::storage(self.path()))
    }
}

/// Blobs in memory.
#[derive(Default)]
struct Memory(Vec<u8>);

impl BlobSink for Memory {
    fn write_blob(&mut self, parts: &[&[u8]]) -> rntuple::Result<u64> {
        let offset = self.0.len().next_multiple_of(ALIGNMENT);
        self.0.resize(offset, 0);
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
        Ok(MEMORY_START + offset as u64)
    }
}

/// A file with memory behind it.
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
            what: "cannot read memory".to_owned(),
            source: std::io::ErrorKind::UnexpectedEof.into(),
        })?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> rntuple::Result<()> {
        match requests.iter().all(|request| request.offset < MEMORY_START) {
            true => self.file.read_many(requests),
            false => requests
                .iter_mut()
                .try_for_each(|request| self.read_at(request.offset, request.buffer)),
        }
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

/// Those of some ranges that are not in memory.
fn in_file(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    ranges.iter().filter(|range| range.end <= MEMORY_START).cloned().collect()
}
