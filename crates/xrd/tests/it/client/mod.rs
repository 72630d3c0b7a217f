//! The client against a real server, and against one that plays tricks.

mod fake;
mod real;
mod trouble;
