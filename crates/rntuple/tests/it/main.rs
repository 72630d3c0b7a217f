//! Tests of the crate's public face.

mod damage;
mod real_files;
mod sample;
mod tfile;
