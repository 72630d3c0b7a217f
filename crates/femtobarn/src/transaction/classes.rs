//! Classes that a transaction declares.

use super::Transaction;
use crate::error::{Error, ErrorKind, Result};
use crate::schema::class::Class;
use crate::schema::class_names;

impl Transaction {
    /// Declares a class; the commit stores it in the catalogue. Declaring an equal class again does nothing.
    ///
    /// # Errors
    /// `Invalid` for a class that cannot be stored; `Exists` if its version has another definition.
    pub fn declare_class(&mut self, class: &Class) -> Result<()> {
        self.check_open()?;
        class.check()?;
        self.add_class(class)
    }

    /// Declares a class for new objects, unless an equal one is declared. If its name and version belong to a
    /// class with other fields, an attached database may have brought an equal class, which has another name
    /// here. Returns the class by its name here.
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

    /// Declares a class, unless an equal one is declared.
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

    /// The committed class of a name and version. The commit checks again; this check only fails early.
    fn committed_class(&self, class: &Class) -> Result<Option<Class>> {
        match self.federation.catalog().class(&class.name, Some(class.version)) {
            Ok(row) => Class::from_json(&row.definition).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
