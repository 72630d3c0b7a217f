//! The client against a real server, and against one that follows a script.

mod fake;
mod login;
mod real;
mod trouble;
