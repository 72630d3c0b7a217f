//! A store in memory that is written and read at the same time, like a file.

use std::sync::{Arc, Mutex};

use rntuple::{BlobSink, ByteSource, EnvelopeLink, Reader, Result};

/// Concatenated blobs, shared by all clones.
#[derive(Clone, Default)]
pub(crate) struct Store(Arc<Mutex<Vec<u8>>>);

impl Store {
    /// A store that begins with these bytes.
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        Store(Arc::new(Mutex::new(bytes)))
    }

    /// The version that a footer describes.
    pub(crate) fn reader(&self, header: &EnvelopeLink, footer: &EnvelopeLink) -> Reader {
        Reader::from_links(Arc::new(self.clone()), header, footer).unwrap()
    }

    /// Bytes written.
    pub(crate) fn len(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }
}

impl BlobSink for Store {
    fn write_blob(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let mut bytes = self.0.lock().unwrap();
        let offset = bytes.len() as u64;
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        Ok(offset)
    }
}

impl ByteSource for Store {
    fn size(&self) -> Result<u64> {
        self.0.lock().unwrap().size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.0.lock().unwrap().read_at(offset, buffer)
    }
}
