//! The logical layer: what names mean, which files are open for whom, and what they may do.
