//! Messages of PostgreSQL's protocol over one socket, and the log-in.
//!
//! Statements are queued, and sent together with the next one whose answer is wanted: a server executes them one after
//! the other, each with a snapshot of its own, and after an error none of those behind it.

use std::io::{self, Read, Write};
use std::mem;
use std::sync::Arc;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::Oid;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{
    AuthenticationSaslBody, DataRowBody, ErrorResponseBody, Header, Message, RowDescriptionBody,
};
use postgres_protocol::message::frontend;

use super::address::PostgresAddress;
use super::failure::{Cause, PostgresFailure};
use super::statements::{KeptStatements, QueuedStatement};
use super::stream::Stream;

const CHUNK_BYTES: usize = 16 << 10;
/// Bytes of a message at most: before the log-in has ended, when the server is not known yet, and after that.
const LOG_IN_BYTES_MAX: usize = 64 << 10;
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// The server's answer to one statement.
pub(super) struct StatementAnswer {
    /// The types of the columns.
    pub(super) columns: Arc<[Oid]>,
    pub(super) rows: Vec<DataRowBody>,
    /// The statement's kind and how many rows it changed, such as `UPDATE 3`.
    pub(super) tag: String,
    /// Whether the server warned, such as that a COMMIT did not wait for a standby.
    pub(super) has_warning: bool,
}

impl StatementAnswer {
    fn empty() -> Self {
        StatementAnswer {
            columns: Arc::from([]),
            rows: vec![],
            tag: String::new(),
            has_warning: false,
        }
    }

    /// Rows that the statement changed.
    pub(super) fn changed(&self) -> usize {
        self.tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
    }
}

/// A connection that is logged in.
pub(super) struct PostgresWire {
    stream: Stream,
    server: Arc<str>,
    incoming: BytesMut,
    outgoing: BytesMut,
    kept: KeptStatements,
    /// The server's process as reported at the log-in, which may be that of a pooler.
    process: i32,
    message_bytes_max: usize,
    /// The transaction's state as of the last answer: `I` without one, `T` in one, `E` in one that has failed.
    state: u8,
    /// Whether the server has warned since the last answer.
    was_warned: bool,
}

impl PostgresWire {
    /// Connects and logs in.
    pub(super) fn connect(
        address: &PostgresAddress,
        host: &str,
        port: u16,
    ) -> Result<Self, PostgresFailure> {
        let server = Arc::clone(&address.shown);
        let stream = Stream::connect(address, host, port);
        let stream =
            stream.map_err(|cause| PostgresFailure { server: Arc::clone(&server), cause })?;
        let (incoming, outgoing) = (BytesMut::new(), BytesMut::new());
        let message_bytes_max = LOG_IN_BYTES_MAX;
        let (state, was_warned) = (b'I', false);
        let mut wire = PostgresWire {
            stream,
            server,
            incoming,
            outgoing,
            kept: KeptStatements::default(),
            process: 0,
            message_bytes_max,
            state,
            was_warned,
        };
        wire.log_in(address, host, port)?;
        wire.message_bytes_max = MESSAGE_BYTES_MAX;
        wire.stream.end_log_in().map_err(|error| wire.lost(&error))?;
        Ok(wire)
    }

    /// Whether the server has ended the connection.
    pub(super) fn has_ended(&self) -> bool {
        self.stream.has_ended()
    }

    /// Whether a transaction is open.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.state != b'I'
    }

    /// The process at the other end, if it is the server's own.
    pub(super) fn process(&self) -> i32 {
        self.process
    }

    /// Lets the server keep statements. No pooler may be between.
    pub(super) fn keep_statements(&mut self) {
        self.kept.begin();
    }

    /// Runs statements one after the other, and returns the answers to the last two.
    pub(super) fn run(
        &mut self,
        statements: &[QueuedStatement],
    ) -> Result<[StatementAnswer; 2], PostgresFailure> {
        let encode = |statement| self.kept.encode(statement, &mut self.outgoing);
        let encoded = statements.iter().try_for_each(encode);
        encoded.map_err(|error| self.malformed(error))?;
        frontend::sync(&mut self.outgoing);
        self.send()?;
        let answers = self.answers();
        if answers.is_err() {
            self.kept.forget();
        }
        answers
    }

    /// Runs statements without parameters, which semicolons separate.
    pub(super) fn run_script(&mut self, script: &str) -> Result<StatementAnswer, PostgresFailure> {
        let queried = frontend::query(script, &mut self.outgoing);
        queried.map_err(|error| self.malformed(error))?;
        self.send()?;
        self.answers().map(|[_, last]| last)
    }

    fn send(&mut self) -> Result<(), PostgresFailure> {
        let outgoing = self.outgoing.split();
        let sent = self.stream.write_all(&outgoing).and_then(|()| self.stream.flush());
        sent.map_err(|error| self.lost(&error))
    }

    /// Reads up to the end of the answers. Returns the last two, or the first error.
    fn answers(&mut self) -> Result<[StatementAnswer; 2], PostgresFailure> {
        let (mut before, mut answer) = (StatementAnswer::empty(), StatementAnswer::empty());
        let mut refused = None;
        self.was_warned = false;
        loop {
            match self.receive()? {
                Message::BindComplete => {
                    before = mem::replace(&mut answer, StatementAnswer::empty());
                }
                Message::RowDescription(body) => answer.columns = self.columns(&body)?,
                Message::DataRow(row) => answer.rows.push(row),
                Message::CommandComplete(body) => {
                    let tag = body.tag().map_err(|error| self.malformed(error))?;
                    answer.tag = tag.to_owned();
                }
                Message::ErrorResponse(body) => {
                    let failure = self.refused(&body);
                    if failure.is_lost() {
                        return Err(failure);
                    }
                    refused.get_or_insert(failure);
                }
                Message::ReadyForQuery(body) => {
                    self.state = body.status();
                    answer.has_warning = self.was_warned;
                    return refused.map_or(Ok([before, answer]), Err);
                }
                Message::ParseComplete
                | Message::CloseComplete
                | Message::NoData
                | Message::EmptyQueryResponse => {}
                _ => return Err(self.unexpected()),
            }
        }
    }

    fn columns(&self, body: &RowDescriptionBody) -> Result<Arc<[Oid]>, PostgresFailure> {
        let fields = body.fields().map(|field| Ok(field.type_oid())).collect::<Vec<Oid>>();
        fields.map(Arc::from).map_err(|error| self.malformed(error))
    }

    /// The next message that belongs to an answer.
    fn receive(&mut self) -> Result<Message, PostgresFailure> {
        loop {
            // The parser makes room for as much as the head of a message says.
            let head = Header::parse(&self.incoming).map_err(|error| self.malformed(error))?;
            if let Some(head) = head
                && usize::try_from(head.len()).is_ok_and(|length| length > self.message_bytes_max)
            {
                return Err(self.malformed(format!("a message of {} bytes", head.len())));
            }
            let parsed = Message::parse(&mut self.incoming);
            match parsed.map_err(|error| self.malformed(error))? {
                Some(Message::NoticeResponse(body)) => {
                    let mut fields = body.fields();
                    while let Ok(Some(field)) = fields.next() {
                        // The severity in English, whatever the server's language.
                        self.was_warned |=
                            field.type_() == b'V' && field.value_bytes() == b"WARNING";
                    }
                }
                Some(Message::ParameterStatus(_) | Message::NotificationResponse(_)) => {}
                Some(message) => return Ok(message),
                None => self.read_more()?,
            }
        }
    }

    fn read_more(&mut self) -> Result<(), PostgresFailure> {
        let mut chunk = [0; CHUNK_BYTES];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    return Err(self.failure(Cause::Lost("it closed the connection".to_owned())));
                }
                Ok(size) => {
                    self.incoming.extend_from_slice(&chunk[..size]);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
    }

    fn log_in(
        &mut self,
        address: &PostgresAddress,
        host: &str,
        port: u16,
    ) -> Result<(), PostgresFailure> {
        // A pooler refuses others.
        let parameters = [
            ("client_encoding", "UTF8"),
            ("user", &*address.user),
            ("database", &*address.database),
            ("application_name", &*address.application_name),
        ];
        let begun = frontend::startup_message(parameters, &mut self.outgoing);
        begun.map_err(|error| self.malformed(error))?;
        self.send()?;
        loop {
            match self.receive()? {
                Message::AuthenticationOk => break,
                Message::AuthenticationCleartextPassword if !self.stream.is_private() => {
                    let what =
                        "it wants the password as it is, and the connection is not encrypted";
                    return Err(self.log_in_refused(what));
                }
                Message::AuthenticationCleartextPassword => {
                    let password = self.password(address, host, port)?;
                    self.send_password(password.as_bytes())?;
                }
                Message::AuthenticationMd5Password(body) => {
                    let password = self.password(address, host, port)?;
                    let user = address.user.as_bytes();
                    let hash = md5_hash(user, password.as_bytes(), body.salt());
                    self.send_password(hash.as_bytes())?;
                }
                Message::AuthenticationSasl(body) => {
                    let password = self.password(address, host, port)?;
                    self.prove_password(&body, &password)?;
                }
                Message::ErrorResponse(body) => return Err(self.refused(&body)),
                _ => {
                    return Err(
                        self.log_in_refused("it wants a way to log in that is not known here")
                    );
                }
            }
        }
        loop {
            match self.receive()? {
                Message::BackendKeyData(body) => self.process = body.process_id(),
                Message::ReadyForQuery(body) => {
                    self.state = body.status();
                    return Ok(());
                }
                Message::ErrorResponse(body) => return Err(self.refused(&body)),
                _ => return Err(self.unexpected()),
            }
        }
    }

    /// Logs in by SCRAM-SHA-256, in which the password is not sent.
    fn prove_password(
        &mut self,
        offered: &AuthenticationSaslBody,
        password: &str,
    ) -> Result<(), PostgresFailure> {
        let mut mechanisms = offered.mechanisms();
        let has_scram = mechanisms.any(|mechanism| Ok(mechanism == SCRAM_SHA_256));
        if !has_scram.map_err(|error| self.malformed(error))? {
            return Err(self.log_in_refused("it offers no SCRAM-SHA-256"));
        }
        let mut scram = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
        let first =
            frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut self.outgoing);
        first.map_err(|error| self.malformed(error))?;
        self.send()?;
        match self.receive()? {
            Message::AuthenticationSaslContinue(body) => {
                scram.update(body.data()).map_err(|error| self.malformed(error))?;
            }
            Message::ErrorResponse(body) => return Err(self.refused(&body)),
            _ => return Err(self.unexpected()),
        }
        let second = frontend::sasl_response(scram.message(), &mut self.outgoing);
        second.map_err(|error| self.malformed(error))?;
        self.send()?;
        match self.receive()? {
            Message::AuthenticationSaslFinal(body) => {
                scram.finish(body.data()).map_err(|error| self.malformed(error))
            }
            Message::ErrorResponse(body) => Err(self.refused(&body)),
            _ => Err(self.unexpected()),
        }
    }

    fn send_password(&mut self, password: &[u8]) -> Result<(), PostgresFailure> {
        let encoded = frontend::password_message(password, &mut self.outgoing);
        encoded.map_err(|error| self.malformed(error))?;
        self.send()
    }

    fn password(
        &self,
        address: &PostgresAddress,
        host: &str,
        port: u16,
    ) -> Result<String, PostgresFailure> {
        let missing = || self.log_in_refused("it wants a password, and there is none");
        address.password_for(host, port).ok_or_else(missing)
    }

    fn log_in_refused(&self, message: &str) -> PostgresFailure {
        let (code, message) = ("28000".to_owned(), message.to_owned());
        self.failure(Cause::Refused { code, message, constraint: None, is_fatal: true })
    }

    fn refused(&self, body: &ErrorResponseBody) -> PostgresFailure {
        let (mut code, mut message) = (String::new(), String::new());
        let (mut constraint, mut is_fatal) = (None, false);
        let mut fields = body.fields();
        while let Ok(Some(field)) = fields.next() {
            let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'C' => code = value,
                b'M' => message = value,
                b'n' => constraint = Some(value),
                // The severity in English, whatever the server's language.
                b'V' => is_fatal = value == "FATAL" || value == "PANIC",
                _ => {}
            }
        }
        self.failure(Cause::Refused { code, message, constraint, is_fatal })
    }

    pub(super) fn malformed(&self, error: impl std::fmt::Display) -> PostgresFailure {
        self.failure(Cause::Malformed(error.to_string()))
    }

    fn unexpected(&self) -> PostgresFailure {
        self.malformed("a message that does not belong here")
    }

    fn lost(&self, error: &io::Error) -> PostgresFailure {
        self.failure(Cause::of_socket(error))
    }

    fn failure(&self, cause: Cause) -> PostgresFailure {
        PostgresFailure { server: Arc::clone(&self.server), cause }
    }
}
