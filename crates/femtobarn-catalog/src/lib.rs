//! The catalogue of a federation.
