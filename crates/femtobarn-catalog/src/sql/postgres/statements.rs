//! Statements that wait to be sent, and those that the server keeps under a name, so that it parses and plans them once.
//!
//! 1. A name means one statement with one list of types, for as long as its connection lasts. The client closes a name
//!    before it gives it to a statement, since a failed attempt may have left the name in use.
//! 2. After an error no statement counts as kept: the server has skipped the messages that were sent behind it.
//! 3. Behind a pooler no statement is named, since the next transaction may have another connection.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use postgres_protocol::Oid;
use postgres_protocol::message::frontend;

use super::parameters::Parameters;

/// Largest number of statements that are remembered; above it all are forgotten.
const KNOWN_MAX: usize = 512;
const BINARY: i16 = 1;

/// A statement and its parameters.
pub(super) struct QueuedStatement {
    pub(super) sql: Arc<str>,
    pub(super) parameters: Parameters,
}

impl QueuedStatement {
    /// About as many bytes as its messages have.
    pub(super) fn size(&self) -> usize {
        self.sql.len() + self.parameters.values().len()
    }
}

/// A statement, and the types of its parameters.
type Key = (Arc<str>, Box<[Oid]>);

/// The statements that ran over a connection. Those that ran twice are kept by the server, with their plans.
#[derive(Default)]
pub(super) struct KeptStatements {
    are_kept: bool,
    /// The number in the name of each; none after it ran once.
    numbers: HashMap<Key, Option<u32>>,
    /// The number of those that are kept.
    count: u32,
}

impl KeptStatements {
    /// Keeps statements from now on: the other end is the server itself.
    pub(super) fn begin(&mut self) {
        self.are_kept = true;
    }

    /// Forgets all statements, since one that was sent has failed.
    pub(super) fn forget(&mut self) {
        self.numbers.clear();
        self.count = 0;
    }

    /// Encodes the messages that run a statement.
    pub(super) fn encode(
        &mut self,
        statement: &QueuedStatement,
        into: &mut BytesMut,
    ) -> io::Result<()> {
        let QueuedStatement { sql, parameters } = statement;
        let types = || parameters.types().iter().copied();
        let Some((number, is_kept)) = self.number(sql, parameters.types()) else {
            frontend::parse("", sql, types(), into)?;
            return run("", parameters, into);
        };
        let name = format!("s{number}");
        if !is_kept {
            frontend::close(b'S', &name, into)?;
            frontend::parse(&name, sql, types(), into)?;
        }
        run(&name, parameters, into)
    }

    /// The number of a statement that ran before, and whether the server keeps it already.
    fn number(&mut self, sql: &Arc<str>, types: &[Oid]) -> Option<(u32, bool)> {
        if !self.are_kept {
            return None;
        }
        let key = (Arc::clone(sql), Box::from(types));
        if let Some(number) = self.numbers.get_mut(&key) {
            let is_kept = number.is_some();
            let number = *number.get_or_insert(self.count);
            self.count += u32::from(!is_kept);
            return Some((number, is_kept));
        }
        if self.numbers.len() >= KNOWN_MAX {
            self.forget();
        }
        self.numbers.insert(key, None);
        None
    }
}

/// Encodes the messages that run a statement which the server has under a name.
fn run(name: &str, parameters: &Parameters, into: &mut BytesMut) -> io::Result<()> {
    // Bind: names of portal and statement, the form of all parameters, these, and the form of all columns.
    let length = 4 + 1 + name.len() + 1 + 4 + 2 + parameters.values().len() + 4;
    into.put_u8(b'B');
    into.put_i32(i32::try_from(length).map_err(io::Error::other)?);
    into.put_u8(0);
    into.put_slice(name.as_bytes());
    into.put_u8(0);
    into.put_i16(1);
    into.put_i16(BINARY);
    into.put_i16(parameters.types().len() as i16);
    into.put_slice(parameters.values());
    into.put_i16(1);
    into.put_i16(BINARY);
    frontend::describe(b'P', "", into)?;
    frontend::execute("", 0, into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(kept: &mut KeptStatements, sql: &str) -> String {
        let mut bytes = BytesMut::new();
        let statement = QueuedStatement { sql: sql.into(), parameters: Parameters::none() };
        kept.encode(&statement, &mut bytes).unwrap();
        // A message is its kind, its length, and its content.
        let (mut kinds, mut at) = (String::new(), 0);
        while at < bytes.len() {
            kinds.push(char::from(bytes[at]));
            let length: [u8; 4] = bytes[at + 1..at + 5].try_into().unwrap();
            at += 1 + u32::from_be_bytes(length) as usize;
        }
        kinds
    }

    #[test]
    fn a_statement_that_runs_again_is_parsed_once_more_and_then_kept() {
        let mut kept = KeptStatements::default();
        assert_eq!([0; 3].map(|_| sent(&mut kept, "SELECT 1")), ["PBDE"; 3], "behind a pooler");
        kept.begin();
        let all = [0; 4].map(|_| sent(&mut kept, "SELECT 1"));
        assert_eq!(all, ["PBDE", "CPBDE", "BDE", "BDE"]);
        assert_eq!(sent(&mut kept, "SELECT 2"), "PBDE");
        kept.forget();
        assert_eq!([0; 3].map(|_| sent(&mut kept, "SELECT 2")), ["PBDE", "CPBDE", "BDE"]);
    }

    #[test]
    fn as_many_statements_are_known_as_there_is_room_for() {
        let mut kept = KeptStatements::default();
        kept.begin();
        for number in 0..2 * KNOWN_MAX {
            assert_eq!(sent(&mut kept, &format!("SELECT {number}")), "PBDE");
        }
        assert!(kept.numbers.len() <= KNOWN_MAX);
    }
}
