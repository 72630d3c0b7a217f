//! What is served: the folders of a configuration as storages under their names.

use std::path::Path;
use std::sync::Arc;

use femtobarn_catalog::{CATALOGUE_FILE, Catalog};

use crate::config::{Config, Export};
use crate::logical::exports::{Exports, Manner};

use crate::physical::{FederationStorage, PosixStorage, Storage, StoragePath, Trouble};
use crate::server::StartError;

/// What a server exports.
pub(crate) struct Exported {
    pub exports: Exports,
    /// Their names.
    pub names: Vec<String>,
    /// Those that are federations.
    pub federations: Vec<(String, Arc<Catalog>)>,
}

type Opened = (Arc<dyn Storage>, Option<Arc<Catalog>>);

/// Opens everything that is to be served.
pub(crate) fn open(config: &Config) -> Result<Exported, StartError> {
    if config.exports.is_empty() {
        let what =
            "there is nothing to serve: name a folder, or an [[export]] in the configuration";
        return Err(StartError::Config(what.to_owned()));
    }
    let mut exported = Exported { exports: Exports::default(), names: vec![], federations: vec![] };
    for export in &config.exports {
        let name = name_of(export)?;
        let (storage, catalog) = storage_of(export)?;
        let manner = Manner {
            is_quick: export.throttle.is_none(),
            is_read_only: export.read_only || config.read_only,
        };
        let prefix = StoragePath::new(name.as_bytes()).map_err(config_error)?;
        exported.exports.add(&prefix, storage, manner).map_err(config_error)?;
        exported.federations.extend(catalog.map(|catalog| (name.clone(), catalog)));
        exported.names.push(name);
    }
    Ok(exported)
}

/// `/` and the folder's own name, unless another one is wanted.
fn name_of(export: &Export) -> Result<String, StartError> {
    if !export.name.is_empty() {
        return Ok(format!("/{}", export.name.trim_matches('/')));
    }
    let folder = std::fs::canonicalize(&export.folder).map_err(|e| unusable(&export.folder, &e))?;
    match folder.file_name().and_then(|name| name.to_str()) {
        Some(name) => Ok(format!("/{name}")),
        None => Err(StartError::Config(format!(
            "{} has no name of its own to be served under; give it one: {}=/name",
            folder.display(),
            folder.display()
        ))),
    }
}

/// What an export's folder is, as a storage, and its catalogue if it is a federation.
fn storage_of(export: &Export) -> Result<Opened, StartError> {
    let folder = &export.folder;
    let files: Arc<dyn Storage> = Arc::new(PosixStorage::new(folder).map_err(system_error)?);
    if !folder.join(CATALOGUE_FILE).exists() {
        return Ok((files, None));
    }
    let catalog = Arc::new(Catalog::open(folder).map_err(|error| unusable(folder, &error))?);
    let shown = FederationStorage::new(catalog.clone(), files);
    Ok((Arc::new(shown), Some(catalog)))
}

fn unusable(folder: &Path, error: &dyn std::fmt::Display) -> StartError {
    StartError::System(format!("cannot serve {}: {error}", folder.display()))
}

fn system_error(trouble: Trouble) -> StartError {
    StartError::System(text_of(trouble))
}

fn config_error(trouble: Trouble) -> StartError {
    StartError::Config(text_of(trouble))
}

fn text_of(trouble: Trouble) -> String {
    match trouble {
        Trouble::Refused(_, what) | Trouble::NotBefore(_, what) => what,
        Trouble::Elsewhere { host, .. } => format!("it is on {host}"),
    }
}
