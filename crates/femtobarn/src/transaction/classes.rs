//! Classes that a transaction declares before any container holds their objects.

use super::Transaction;
use crate::error::{Error, ErrorKind, Result};
use crate::schema::class::Class;
use crate::schema::class_names;

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

    /// Declares a class for objects that are to come, unless the same is declared already. If its name and
    /// version are those of a class with other fields, it may be that this class came with a database and
    /// goes by another name here. Returns the class by the name that it has here.
    pub(super) fn declare_or_match_class(&mut self, class: &Class) -> Result<Class> {
        match self.add_class(class) {
            Ok(()) => Ok(class.clone()),
            Err(taken @ Error::Exists { .. }) => {
                let rows = self.federation.catalog().classes()?;
                let namesakes = class_names::namesakes(rows, [class].into_iter())?;
                let same = class_names::with_same_fields(class, &namesakes);
                same.filter(|same| same.version == class.version).cloned().ok_or(taken)
            }
            Err(error) => Err(error),
        }
    }

    /// Declares a class, unless the same is declared already.
    pub(super) fn add_class(&mut self, class: &Class) -> Result<()> {
        let named = |other: &&Class| other.name == class.name && other.version == class.version;
        let known = match self.new_classes.iter().find(named) {
            Some(other) => Some(other.clone()),
            None => self.committed_class(class)?,
        };
        match known {
            Some(known) if known == *class => Ok(()),
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

    /// The class that the catalogue has under a name and a version. The commit looks again; this is so that
    /// nobody writes in vain.
    fn committed_class(&self, class: &Class) -> Result<Option<Class>> {
        match self.federation.catalog().class(&class.name, Some(class.version)) {
            Ok(row) => Class::from_json(&row.definition).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
