//! Reading: snapshots, views, and objects whose fields load when Python asks for them.
//! | module | contents |
//! |---|---|
//! | `snapshot`, `view` | handles on a federation and on a container, as of a commit |
//! | `values` | values that objects are searched by, and bounds of clusters |
//! | `object` | one object; `object_fields`, the fields that all objects of a view share |
//! | `field_column` | one field of neighbouring objects |
//!
//! May import `handles`, `page_budget`, `columns`, `buffer`, `numpy_arrays`, `oid` and `error`; neither `rows` nor
//! `transaction`.

pub(crate) mod field_column;
pub(crate) mod object;
pub(crate) mod object_fields;
pub(crate) mod snapshot;
pub(crate) mod values;
pub(crate) mod view;
