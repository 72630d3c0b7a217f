//! Arrow's C data interface (arrow.apache.org/docs/format/CDataInterface.html).
//!
//! `abi` has its structures, `export` makes them of arrays without copying numbers, texts and offsets, `schema` makes
//! their types, `stream` is a sequence of arrays, `import` copies arrays of other libraries.
//!
//! | here | Arrow |
//! |---|---|
//! | truth value | boolean, bits |
//! | byte, character | `uint8` with the metadata `femtobarn.type` |
//! | text | `large_utf8` |
//! | list, array, record | `large_list`, `fixed_size_list`, `struct` |
//! | optional value | a value that may be null |
//! | variant | a dense union, with an alternative of nulls for variants without a value |

pub(crate) mod abi;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod schema;
pub(crate) mod stream;
