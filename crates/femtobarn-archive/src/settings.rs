//! The settings of a federation's storage: the file `storage.toml` in its folder.
//!
//! ```toml
//! apply_every_seconds = 60
//!
//! [stores.tape]
//! kind = "commands"
//! migrate = ["/opt/site/to-tape"]
//! stage = ["/opt/site/from-tape"]
//! remove = ["/opt/site/forget"]
//! query = ["/opt/site/ask"]
//!
//! [[rules]]
//! databases = "raw-*"
//! stores = ["tape"]
//! after_seconds = 3600
//!
//! [disk]
//! high_percent = 90
//! low_percent = 80
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use wildmatch::WildMatch;

use crate::error::{Error, Result};
use crate::stores::{
    CommandStore, FolderStore, S3Settings, S3Store, SiteCommands, Store, XrootdSettings,
    XrootdStore,
};

/// The file of the settings, in the federation's folder.
pub const STORAGE_FILE: &str = "storage.toml";

/// The stores of a federation, and the rules for copies and eviction.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct StorageSettings {
    /// The stores by their names.
    pub stores: BTreeMap<String, StoreSettings>,
    /// The rules for copies; the first rule whose pattern matches a database's name applies.
    pub rules: Vec<Rule>,
    /// The limits that decide when files are evicted.
    pub disk: DiskLimits,
    /// The interval at which a server of the federation applies the rules, in seconds; without it the server does not.
    pub apply_every_seconds: Option<u64>,
}

/// A store.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum StoreSettings {
    /// A folder of another disk or of a shared file system.
    Folder {
        /// The folder, which must exist.
        path: PathBuf,
        /// Readers read in place, and the file is not staged for them.
        #[serde(default)]
        in_place: bool,
    },
    /// A bucket of an object store.
    S3(S3Settings),
    /// A folder of a server that speaks XRootD's protocol.
    Xrootd(XrootdSettings),
    /// Mass storage behind a site's commands.
    Commands(SiteCommands),
}

/// A rule: which databases are copied to which stores.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// A pattern for names of databases; `*` matches any letters, `?` one letter.
    pub databases: String,
    /// The stores that get a copy each.
    pub stores: Vec<String>,
    /// Seconds between the last change of a sealed file and its first copy.
    #[serde(default)]
    pub after_seconds: u64,
    /// Complete copies that an eviction needs; by default one in each of the stores.
    pub copies: Option<usize>,
    /// Never evicts the files.
    #[serde(default)]
    pub keep_on_disk: bool,
}

/// The limits that decide when files are evicted.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct DiskLimits {
    /// Eviction begins when more than this part of the disk is used, in percent.
    pub high_percent: f64,
    /// Eviction ends when no more than this part is used, in percent.
    pub low_percent: f64,
}

impl Default for DiskLimits {
    fn default() -> Self {
        DiskLimits { high_percent: 95.0, low_percent: 85.0 }
    }
}

impl StorageSettings {
    /// The settings of the federation in `folder`; without a settings file, there are no stores and no rules.
    ///
    /// # Errors
    /// `Invalid`, with the line, if they cannot be parsed; `Io` or `Denied` if the file cannot be read.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(STORAGE_FILE);
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text).map_err(|error| match error {
                Error::Invalid { what } => {
                    Error::Invalid { what: format!("{}: {what}", path.display()) }
                }
                other => other,
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Error::io("read", &path, error)),
        }
    }

    /// Settings from their text.
    ///
    /// # Errors
    /// `Invalid` if they cannot be parsed, or contradict themselves.
    pub fn parse(text: &str) -> Result<Self> {
        let settings: Self = toml::from_str(text)
            .map_err(|error| Error::Invalid { what: error.to_string().trim_end().to_owned() })?;
        for rule in &settings.rules {
            let unknown = rule.stores.iter().find(|name| !settings.stores.contains_key(*name));
            if let Some(name) = unknown {
                let what = format!(
                    "the rule for {:?} names store {name:?}, which storage.toml does not define",
                    rule.databases
                );
                return Err(Error::Invalid { what });
            }
            if rule.copies.is_some_and(|copies| copies == 0 || copies > rule.stores.len()) {
                let what = format!(
                    "the rule for {:?} must ask for 1 to {} copies, at most one in each of its stores",
                    rule.databases,
                    rule.stores.len()
                );
                return Err(Error::Invalid { what });
            }
        }
        if settings.apply_every_seconds == Some(0) {
            let what = "apply_every_seconds must be 1 or more".to_owned();
            return Err(Error::Invalid { what });
        }
        let DiskLimits { high_percent, low_percent } = settings.disk;
        if !(0.0 < low_percent && low_percent <= high_percent && high_percent <= 100.0) {
            let what = format!(
                "disk: low_percent {low_percent} must be above 0 and at most high_percent {high_percent}, \
                 which is at most 100"
            );
            return Err(Error::Invalid { what });
        }
        Ok(settings)
    }

    /// The rule for a database.
    pub fn rule_for(&self, database: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| WildMatch::new(&rule.databases).matches(database))
    }

    /// Creates a store; `None` if the settings do not name it.
    ///
    /// # Errors
    /// `Invalid`, with the store's name, if its settings are wrong.
    pub fn open_store(&self, name: &str) -> Result<Option<Arc<dyn Store>>> {
        let store = self.stores.get(name).map(StoreSettings::open).transpose();
        store.map_err(|error| match error {
            Error::Invalid { what } => Error::Invalid { what: format!("store {name}: {what}") },
            other => other,
        })
    }
}

impl StoreSettings {
    fn open(&self) -> Result<Arc<dyn Store>> {
        Ok(match self {
            StoreSettings::Folder { path, .. } => Arc::new(FolderStore::new(path.clone())?),
            StoreSettings::S3(settings) => Arc::new(S3Store::new(settings.clone())?),
            StoreSettings::Xrootd(settings) => Arc::new(XrootdStore::new(settings.clone())?),
            StoreSettings::Commands(commands) => Arc::new(CommandStore::new(commands.clone())?),
        })
    }

    /// Whether readers read in the store, and files are not staged for them.
    pub(crate) fn reads_in_place(&self) -> bool {
        match self {
            StoreSettings::Folder { in_place, .. } => *in_place,
            StoreSettings::S3(settings) => settings.in_place,
            StoreSettings::Xrootd(settings) => settings.in_place,
            StoreSettings::Commands(_) => false,
        }
    }

    /// The number of files that the store moves at once without one slowing down another.
    pub(crate) fn streams(&self) -> usize {
        match self {
            StoreSettings::Folder { .. } => 2,
            StoreSettings::S3(_) | StoreSettings::Xrootd(_) => 4,
            StoreSettings::Commands(commands) => commands.streams,
        }
    }
}

impl Rule {
    /// Complete copies that an eviction needs.
    pub fn copies(&self) -> usize {
        self.copies.unwrap_or(self.stores.len()).max(1)
    }
}
