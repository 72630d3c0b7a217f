//! The folders of a store on a server: the mark of the top folder, and listings.

use xrd::ErrorCode;
use xrd::flags::{DirlistOptions, OpenOptions, StatFlags};

use super::{HINT, XrootdStore};
use crate::error::{Error, Result};
use crate::stores::store::{LOST_AND_FOUND, MARK, MARK_TEXT, check_key, not_mounted};

/// The depth to which folders are listed; a server may show a folder within itself.
const DEPTH_MAX: usize = 8;

impl XrootdStore {
    /// Makes an empty folder a store.
    pub(super) async fn mark(&self) -> Result<()> {
        match self.check_mounted().await {
            Err(Error::Unavailable { .. }) => {}
            marked => return marked,
        }
        let client = self.client().await?;
        let listed = client.dirlist(&self.location("", "")?, DirlistOptions::default()).await;
        match listed {
            Ok(listed) if listed.entries.iter().all(|entry| entry.name == LOST_AND_FOUND) => {}
            Ok(_) => return Err(not_mounted(self, HINT)),
            Err(error) if error.code() == Some(ErrorCode::NOT_FOUND) => {
                return Err(not_mounted(self, HINT));
            }
            Err(error) => return Err(self.error("list", "the folder", error)),
        }
        let options = OpenOptions::NEW | OpenOptions::UPDATE;
        let refused = |error| self.error("write", MARK, error);
        let mark = client.open(&self.location(MARK, "")?, options).await.map_err(refused)?;
        mark.write_at(0, MARK_TEXT).await.map_err(refused)?;
        mark.sync().await.map_err(refused)?;
        mark.close().await.map_err(refused)
    }

    /// The objects whose names begin with a prefix, sorted.
    pub(super) async fn found_below(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        self.check_mounted().await?;
        let client = self.client().await?;
        let mut folders = vec![String::new()];
        let mut found = vec![];
        while let Some(folder) = folders.pop() {
            let place = self.location(&folder, "")?;
            let listed = match client.dirlist(&place, DirlistOptions::STAT).await {
                Ok(listed) => listed,
                // The folder was removed meanwhile.
                Err(error) if error.code() == Some(ErrorCode::NOT_FOUND) => continue,
                Err(error) => return Err(self.error("list", &folder, error)),
            };
            for entry in listed.entries {
                let Ok(name) = std::str::from_utf8(&entry.name) else { continue };
                let key =
                    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
                if check_key(&key).is_err() {
                    continue;
                }
                let line = match entry.stat {
                    Some(line) => line,
                    None => match client.stat(&self.location(&key, "")?).await {
                        Ok(line) => line,
                        Err(_) => continue,
                    },
                };
                if !line.flags.contains(StatFlags::DIRECTORY) {
                    if key.starts_with(prefix) {
                        found.push((key, line.size));
                    }
                } else if key.split('/').count() < DEPTH_MAX && may_have(&key, prefix) {
                    folders.push(key);
                }
            }
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// Whether names in a folder may begin with a prefix.
fn may_have(folder: &str, prefix: &str) -> bool {
    let both = folder.len().min(prefix.len());
    folder.as_bytes()[..both] == prefix.as_bytes()[..both]
}
