//! Classes that a transaction declares before any container holds their objects.

use super::Transaction;
use crate::class::Class;
use crate::error::{Error, ErrorKind, Result};

impl Transaction {
    /// Declares a class, so that the catalogue knows it once this transaction is committed. The same
    /// class may be declared many times.
    ///
    /// # Errors
    /// `Invalid` for a class that cannot be stored; `Exists` if its version has another definition.
    pub fn declare_class(&mut self, class: &Class) -> Result<()> {
        self.check_open()?;
        class.check()?;
        self.add_class(class)
    }

    /// Declares a class, unless the same is declared already.
    pub(super) fn add_class(&mut self, class: &Class) -> Result<()> {
        let named = |other: &&Class| other.name == class.name && other.version == class.version;
        let known = match self.new_classes.iter().find(named) {
            Some(other) => Some(other.to_json()),
            None => self.committed_class(class)?,
        };
        match known {
            Some(definition) if definition == class.to_json() => Ok(()),
            Some(_) => Err(Error::Exists {
                what: format!(
                    "class {} version {} has another definition; raise its version",
                    class.name, class.version
                ),
            }),
            None => {
                self.new_classes.push(class.clone());
                Ok(())
            }
        }
    }

    /// The definition that the catalogue has of a class. The commit looks again; this is so that
    /// nobody writes in vain.
    fn committed_class(&self, class: &Class) -> Result<Option<String>> {
        match self.federation.catalog().class(&class.name, Some(class.version)) {
            Ok(row) => Ok(Some(row.definition)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
