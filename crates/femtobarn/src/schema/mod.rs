//! Classes, which define the fields of objects, and their names in a federation.

pub(crate) mod class;
pub(crate) mod class_names;
pub(crate) mod field_type;
