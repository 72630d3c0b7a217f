//! Requests about extended attributes: fattr.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_fattr.

use bytes::Bytes;
use nix::errno::Errno;
use xrd::ErrorCode;
use xrd::flags::FattrOptions;
use xrd::limits::{ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX};
use xrd::request::{AttributeAction, Fattr, FileRef};
use xrd::response::{AttributeList, AttributeOutcome, AttributeOutcomes, Response};

use super::handler::RequestHandler;
use super::responses::{code_of, failed, ok};
use super::service::RootService;
use crate::auth::Action;
use crate::physical::{Storage, StorageError, StoragePath, StorageResult};

impl RequestHandler {
    pub(super) async fn fattr(&self, fattr: Fattr) -> Result<Response, Response> {
        let changes = matches!(fattr.action, AttributeAction::Delete(_) | AttributeAction::Set(_));
        let path = match &fattr.target {
            FileRef::Location(location) if changes => self.path(location, Action::Modify).await?,
            FileRef::Location(location) => self.path(location, Action::Read).await?,
            FileRef::Handle(handle) if changes => self.writable_file(*handle)?.path.clone(),
            FileRef::Handle(handle) => self.file(*handle)?.path.clone(),
        };
        let (options, action) = (fattr.options, fattr.action);
        match action {
            AttributeAction::List => {
                let with_values = options.contains(FattrOptions::VALUES);
                let list =
                    self.call(false, move |service| list(service, &path, with_values)).await?;
                match list.encode() {
                    Ok(body) => Ok(Response::Ok(body.into())),
                    Err(error) => Err(failed(ErrorCode::SERVER_ERROR, error.to_string())),
                }
            }
            action => {
                let act = move |service: &RootService| outcomes(service, &path, options, action);
                Ok(ok(&self.call(false, act).await?))
            }
        }
    }
}

fn list(
    service: &RootService,
    path: &StoragePath,
    with_values: bool,
) -> StorageResult<AttributeList> {
    let exports = &service.logical.exports;
    let mut attributes = Vec::new();
    for name in exports.attributes(path)? {
        // Other programs may have set names that are too long for the protocol.
        if name.len() > ATTRIBUTE_NAME_BYTES_MAX {
            continue;
        }
        let value = if with_values {
            match exports.attribute(path, &name) {
                Ok(value) if value.len() <= ATTRIBUTE_VALUE_BYTES_MAX => Some(value.into()),
                // The attribute has vanished, or its value is too long for the protocol.
                Ok(_) | Err(StorageError::Refused(Errno::ENODATA, _)) => continue,
                Err(error) => return Err(error),
            }
        } else {
            None
        };
        attributes.push((Bytes::from(name), value));
    }
    Ok(AttributeList { attributes })
}

/// Performs an action on each attribute. The failure of an attribute is part of the answer, beside the other outcomes.
fn outcomes(
    service: &RootService,
    path: &StoragePath,
    options: FattrOptions,
    action: AttributeAction,
) -> StorageResult<AttributeOutcomes> {
    let exports = &service.logical.exports;
    // A path that does not exist fails the whole request.
    exports.metadata(path, crate::physical::Opaque(&[]))?;
    let outcome =
        |name: Bytes, done: StorageResult<()>| AttributeOutcome { name, error: error_of(done) };
    let must_be_new = options.contains(FattrOptions::NEW);
    let told = |outcomes| AttributeOutcomes { outcomes, values: None };
    Ok(match action {
        AttributeAction::List => AttributeOutcomes::default(),
        AttributeAction::Delete(names) => told(
            names
                .into_iter()
                .map(|name| outcome(name.clone(), exports.remove_attribute(path, &name)))
                .collect(),
        ),
        AttributeAction::Set(pairs) => told(
            pairs
                .into_iter()
                .map(|(name, value)| {
                    let set = exports.set_attribute(path, &name, &value, must_be_new);
                    outcome(name, set)
                })
                .collect(),
        ),
        AttributeAction::Get(names) => {
            let got = names.into_iter().map(|name| match exports.attribute(path, &name) {
                Ok(value) => (outcome(name, Ok(())), Bytes::from(value)),
                Err(error) => (outcome(name, Err(error)), Bytes::new()),
            });
            let (outcomes, values) = got.unzip();
            AttributeOutcomes { outcomes, values: Some(values) }
        }
    })
}

fn error_of(done: StorageResult<()>) -> Option<ErrorCode> {
    match done {
        Ok(()) => None,
        Err(StorageError::Refused(errno, _)) => Some(code_of(errno)),
        Err(_) => Some(ErrorCode::FS_ERROR),
    }
}
