//! What objects are made of: classes and their names.

pub(crate) mod class;
pub(crate) mod class_names;
