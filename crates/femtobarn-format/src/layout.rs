//! The options of a container: page size, cluster size, compression, and whether it is a series of conditions.

use rntuple::{Compression, WriteOptions};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::series::SeriesOptions;

/// How the pages of a container are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Uncompressed: the fastest to write, and parts of a page can be read.
    #[default]
    Plain,
    /// LZ4: half the speed, and smaller if data repeat.
    Fast,
    /// Zstandard: the smallest.
    Archive,
}

/// How a container is laid out on disk. The catalogue keeps it in the container's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContainerOptions {
    /// Bytes of a full page: 4 KiB to 16 MiB, 64 KiB by default. Small pages suit objects that are read one by one.
    pub page_size: usize,
    /// Bytes after which a cluster ends: at least those of a page, 64 MiB by default.
    pub cluster_size: u64,
    /// Compression of pages.
    pub compression: Profile,
    /// Set if the container is a series of conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesOptions>,
}

impl Default for ContainerOptions {
    fn default() -> Self {
        ContainerOptions {
            page_size: 64 << 10,
            cluster_size: 64 << 20,
            compression: Profile::Plain,
            series: None,
        }
    }
}

impl ContainerOptions {
    const PAGE_SIZES: std::ops::RangeInclusive<usize> = 4 << 10..=16 << 20;

    /// Parses the catalogue's JSON.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the JSON is malformed, has an unknown field, or a value is out of range.
    pub fn from_json(options: &str) -> Result<Self> {
        let options: Self = serde_json::from_str(options)
            .map_err(|error| Error::invalid(format!("invalid container options: {error}")))?;
        options.check()?;
        Ok(options)
    }

    /// The catalogue's JSON.
    pub fn to_json(self) -> String {
        serde_json::to_string(&self).expect("options are numbers and names")
    }

    /// Checks that the options are within their limits.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the option that is out of range.
    pub fn check(&self) -> Result<()> {
        let size = self.page_size;
        if !Self::PAGE_SIZES.contains(&size) {
            return Err(Error::invalid(format!(
                "invalid page size of {size} bytes: must be 4 KiB to 16 MiB"
            )));
        }
        if self.cluster_size < size as u64 {
            return Err(Error::invalid(format!(
                "invalid cluster size of {} bytes: must be at least a page of {size} bytes",
                self.cluster_size
            )));
        }
        Ok(())
    }

    /// The options in the form that page writers take.
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
