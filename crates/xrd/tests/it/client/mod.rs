//! The client against a real server, and against one that follows a script.

mod fake;
mod real;
mod trouble;
