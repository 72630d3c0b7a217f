//! How a container is laid out on disk.

use rntuple::{Compression, WriteOptions};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How the pages of a container are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Not at all: the fastest to write, and readable in part.
    #[default]
    Plain,
    /// LZ4: half the speed, and smaller where data repeat.
    Fast,
    /// Zstandard: the smallest.
    Archive,
}

/// How a container is laid out on disk. Kept in the catalogue with the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContainerOptions {
    /// Bytes of a full page: 4 KiB to 16 MiB, 64 KiB by default. Small pages suit objects that are
    /// read one by one.
    pub page_size: usize,
    /// Bytes after which a cluster ends: at least a page, 64 MiB by default.
    pub cluster_size: u64,
    /// Compression of pages.
    pub compression: Profile,
}

impl Default for ContainerOptions {
    fn default() -> Self {
        ContainerOptions {
            page_size: 64 << 10,
            cluster_size: 64 << 20,
            compression: Profile::Plain,
        }
    }
}

impl ContainerOptions {
    const PAGE_SIZES: std::ops::RangeInclusive<usize> = 4 << 10..=16 << 20;

    /// Options from the catalogue's JSON.
    ///
    /// # Errors
    /// `Invalid` if they are no such options, or beyond their limits.
    pub fn from_json(options: &str) -> Result<Self> {
        let options: Self = serde_json::from_str(options)
            .map_err(|error| Error::invalid(format!("container options: {error}")))?;
        options.check()?;
        Ok(options)
    }

    /// Options as the catalogue's JSON.
    pub fn to_json(self) -> String {
        serde_json::to_string(&self).expect("options are plain numbers and names")
    }

    /// Whether the options are within their limits.
    ///
    /// # Errors
    /// `Invalid` if they are not.
    pub fn check(&self) -> Result<()> {
        let size = self.page_size;
        if !Self::PAGE_SIZES.contains(&size) {
            return Err(Error::invalid(format!(
                "a page of {size} bytes is not between 4 KiB and 16 MiB"
            )));
        }
        if self.cluster_size < size as u64 {
            return Err(Error::invalid(format!(
                "a cluster of {} bytes is smaller than a page of {size}",
                self.cluster_size
            )));
        }
        Ok(())
    }

    /// The options as writers of pages have them.
    pub fn write_options(&self) -> WriteOptions {
        WriteOptions {
            page_size: self.page_size,
            cluster_size: self.cluster_size,
            compression: match self.compression {
                Profile::Plain => Compression::None,
                Profile::Fast => Compression::Lz4 { level: 1 },
                Profile::Archive => Compression::Zstd { level: 3 },
            },
        }
    }
}
