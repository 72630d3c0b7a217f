//! Classes that a transaction declares before any container holds their objects.

use super::Transaction;
use crate::class::Class;
use crate::error::Result;

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
}
