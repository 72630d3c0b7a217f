//! Direct connections: older servers and clients, many threads on one connection, and hostile bytes.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use femtobarn_catalog::{Catalogue, Commit, ContainerId, Csn, LockTarget};
use femtobarn_rpc::turns::{TURNS_PATH, TURNS_PROTOCOL, TurnDecoder, turn_bytes};
use femtobarn_rpc::v1::operation::Kind;
use femtobarn_rpc::v1::{
    self, Call, ClientTurn, Hello, Operation, PublishRequest, Question, ServerTurn, call, question,
    reply,
};
use tonic::Code;
use uuid::Uuid;

use super::proxy::Proxy;
use super::{LONG, Routes, Stage, connect, until};

#[test]
fn a_session_needs_only_a_direct_connection() {
    let stage = Stage::routed(Routes::Direct);
    let there = stage.remote();
    let csn = stage.publish(&there, None).unwrap();
    let (pinned, pin) = there.pin_head().unwrap();
    assert_eq!((pinned, stage.newest(&there)), (csn, Some(csn)));
    assert_eq!(there.reserve_containers(3).unwrap().len(), 3);
    let missing = there.tag("none").unwrap_err();
    assert_eq!(missing.kind(), femtobarn_catalog::ErrorKind::NotFound, "{missing}");
    drop((pin, there));
    until("leaving", || stage.served().sessions().is_empty());
}

#[test]
fn an_older_server_is_asked_by_grpc() {
    let stage = Stage::routed(Routes::Grpc);
    let proxy = Proxy::new(stage.port);
    let there = connect(&format!("root://127.0.0.1:{}//test.fed", proxy.port)).unwrap();
    let (database, container) = (stage.database, stage.container);
    let guard = there.locks().lock_container(database, container, LONG).unwrap();
    let csn = stage.publish(&there, None).unwrap();
    proxy.break_all();
    assert_eq!(stage.publish(&there, Some(csn)).unwrap(), Csn(csn.0 + 1));
    assert_eq!(stage.served().sessions().len(), 1);
    drop((guard, there));
    until("leaving", || stage.served().sessions().is_empty());
}

#[test]
fn threads_of_a_session_get_their_answers_in_any_order() {
    const THREADS: u32 = 8;
    let stage = Stage::new();
    let (there, other) = (stage.remote(), stage.remote());
    let container = |number| ContainerId(1000 + number);
    let held: Vec<_> = (0..THREADS)
        .map(|n| other.locks().lock_container(stage.database, container(n), LONG).unwrap())
        .collect();
    thread::scope(|scope| {
        let (stage, there) = (&stage, &there);
        let (sender, done) = mpsc::channel();
        for number in 0..THREADS {
            let sender = sender.clone();
            scope.spawn(move || {
                let owner = there.locks().owner();
                let guard = owner.lock_container(stage.database, container(number), LONG).unwrap();
                let message = format!("{number}");
                let transaction = Uuid::new_v4();
                there.commit(Commit { transaction, message, ..Commit::default() }).unwrap();
                drop(guard);
                sender.send(number).unwrap();
            });
        }
        until("waiting", || stage.served().waiting().unwrap().len() == THREADS as usize);
        // Any of the threads may be the one that reads, including the first and the last to get its answer.
        for (number, guard) in held.into_iter().enumerate().rev() {
            drop(guard);
            assert_eq!(done.recv_timeout(LONG).unwrap(), number as u32);
        }
    });
}

/// A connection that has begun as a direct one, or the server's refusal.
fn direct(stage: &Stage, headers: &str) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect(("127.0.0.1", stage.port)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    write!(stream, "GET {TURNS_PATH} HTTP/1.1\r\nHost: x\r\n{headers}\r\n").unwrap();
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    if head.starts_with("HTTP/1.1 101 ") { Ok(stream) } else { Err(head) }
}

/// A client that sends arbitrary bytes.
struct RawClient {
    stream: TcpStream,
    decoder: TurnDecoder,
}

impl RawClient {
    fn new(stage: &Stage) -> Self {
        let headers = format!("Connection: Upgrade\r\nUpgrade: {TURNS_PROTOCOL}\r\n");
        RawClient { stream: direct(stage, &headers).unwrap(), decoder: TurnDecoder::default() }
    }

    fn send(&mut self, turn: &ClientTurn) {
        self.stream.write_all(&turn_bytes(turn).unwrap()).unwrap();
    }

    /// The next turn; none when the server has closed the connection.
    fn next(&mut self) -> Option<ServerTurn> {
        loop {
            let turn = self.decoder.next_turn().unwrap();
            if turn.is_some() {
                return turn;
            }
            let mut bytes = [0; 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                // The server closes a connection from which it has not read all bytes.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                count => self.decoder.push(&bytes[..count.unwrap()]),
            }
        }
    }
}

fn hello() -> ClientTurn {
    let session = Uuid::new_v4().into_bytes().to_vec();
    let hello = Hello { federation: "test.fed".into(), session, ..Hello::default() };
    ClientTurn { hello: Some(hello), ..ClientTurn::default() }
}

#[test]
fn a_request_that_asks_for_another_protocol_is_answered_by_the_name_of_ours() {
    let stage = Stage::new();
    for headers in ["", "Connection: Upgrade\r\nUpgrade: websocket\r\n"] {
        let answer = direct(&stage, headers).unwrap_err();
        assert!(answer.starts_with("HTTP/1.1 426 "), "{answer}");
        assert!(answer.contains(TURNS_PROTOCOL), "{answer}");
    }
}

#[test]
fn a_hostile_client_receives_the_reason_for_the_end_of_its_connection() {
    let stage = Stage::new();
    let turn = |turn: &ClientTurn| turn_bytes(turn).unwrap();
    let lock = Operation { kind: Kind::LockShared.into(), number: 1, ..Operation::default() };
    let bad_lock = ClientTurn { operations: vec![lock], ..ClientTurn::default() };
    let many_calls = ClientTurn { calls: vec![Call::default(); 65], ..ClientTurn::default() };
    for (name, bytes) in [
        ("no hello", turn(&ClientTurn::default())),
        ("a long turn", [turn(&hello()), vec![0xff; 4]].concat()),
        ("a long hello", vec![0xff; 4]),
        ("not a message", [turn(&hello()), vec![0, 0, 0, 2, 0xff, 0xff]].concat()),
        ("two hellos", [turn(&hello()), turn(&hello())].concat()),
        ("a malformed operation", [turn(&hello()), turn(&bad_lock)].concat()),
        ("many calls", [turn(&hello()), turn(&many_calls)].concat()),
    ] {
        let mut client = RawClient::new(&stage);
        client.stream.write_all(&bytes).unwrap();
        let end = std::iter::from_fn(|| client.next()).find_map(|turn| turn.end);
        let code = end.map(|end| Code::from(end.code));
        assert_eq!(code, Some(Code::InvalidArgument), "{name}");
        assert_eq!(client.next(), None, "{name}: the connection is closed");
    }
    stage.publish(&stage.remote(), None).unwrap();
}

#[test]
fn a_session_whose_turn_is_truncated_ends_with_its_connection() {
    let stage = Stage::with_grace(LONG, Duration::ZERO, super::Authenticator::open());
    let mut client = RawClient::new(&stage);
    client.send(&hello());
    assert!(client.next().unwrap().welcome.is_some());
    assert_eq!(stage.served().sessions().len(), 1);
    client.stream.write_all(&[0, 1, 0, 0, 7]).unwrap();
    drop(client);
    until("leaving", || stage.served().sessions().is_empty());
}

#[test]
fn calls_that_fail_end_with_their_status_and_harm_no_other() {
    let stage = Stage::new();
    let mut client = RawClient::new(&stage);
    let head = question::Of::Head(v1::Empty {});
    let head = Question { federation: "test.fed".into(), of: Some(head), session: vec![] };
    let stranger = PublishRequest {
        federation: "test.fed".into(),
        session: vec![7; 16],
        ..PublishRequest::default()
    };
    let nothing = Question { of: None, ..head.clone() };
    let elsewhere = Question { federation: "other.fed".into(), ..head.clone() };
    let calls = [
        None,
        Some(call::Of::LookUp(nothing)),
        Some(call::Of::LookUp(elsewhere)),
        Some(call::Of::Publish(stranger)),
        Some(call::Of::LookUp(head)),
    ];
    let calls = (1..).zip(calls).map(|(number, of)| Call { number, of });
    let turn = ClientTurn { calls: calls.collect(), ..ClientTurn::default() };
    client.send(&hello());
    client.send(&turn);
    let turns = std::iter::from_fn(|| client.next());
    let replies = turns.flat_map(|turn| turn.replies).take(5);
    let replies: BTreeMap<_, _> = replies.map(|reply| (reply.number, reply.of.unwrap())).collect();
    let codes = replies.into_values().map(|of| match of {
        reply::Of::Failed(status) => Code::from(status.code),
        _ => Code::Ok,
    });
    let expected = [
        Code::Unimplemented,
        Code::InvalidArgument,
        Code::NotFound,
        Code::FailedPrecondition,
        Code::Ok,
    ];
    assert_eq!(codes.collect::<Vec<_>>(), expected);
}

#[test]
fn a_client_that_never_reads_is_not_read_from_and_blocks_no_other() {
    let stage = Stage::new();
    let mut client = RawClient::new(&stage);
    client.send(&hello());
    let target = LockTarget::Container(stage.database, stage.container);
    let pair = |number| {
        let lock = Operation {
            kind: Kind::LockExclusive.into(),
            number,
            owner: 1,
            target: Some(target.into()),
            ..Operation::default()
        };
        let unlock = Operation { kind: Kind::Unlock.into(), number: 0, ..lock.clone() };
        [lock, unlock]
    };
    client.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut first = 1;
    loop {
        let operations = (first..first + 500).flat_map(pair).collect();
        first += 500;
        let turn = ClientTurn { operations, ..ClientTurn::default() };
        match client.stream.write_all(&turn_bytes(&turn).unwrap()) {
            Ok(()) => {}
            // The server has stopped reading.
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    stage.publish(&stage.remote(), None).unwrap();
    drop(client);
}
