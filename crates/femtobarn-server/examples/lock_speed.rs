//! How many locks a second the server locks and unlocks for sessions that lock in batches, through a socket.
//!
//! `cargo run --release -p femtobarn-server --example lock_speed -- [sessions] [batch] [seconds]`

use std::error::Error;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use femtobarn_catalog::{Catalog, ContainerId, DatabaseId, LockTarget};
use femtobarn_rpc::v1::catalogue_client::CatalogueClient;
use femtobarn_rpc::v1::operation::Kind;
use femtobarn_rpc::v1::{ClientTurn, Hello, Operation, Target};
use femtobarn_server::auth::Authenticator;
use femtobarn_server::logical::catalogue::Served;
use femtobarn_server::protocol::rpc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use uuid::Uuid;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let mut given = std::env::args().skip(1).map(|argument| argument.parse::<u32>());
    let mut number = |default| given.next().unwrap_or(Ok(default));
    let (sessions, batch, seconds) = (number(64)?, number(32)?, number(5)?);
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("test.fed");
    drop(Catalog::create(&place, "test")?);
    let served = Served::open("test.fed", &place, false, Duration::from_secs(60))?;
    let router = rpc::routes(vec![Arc::new(served)], Authenticator::open());
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, router).await
    });
    let end = Instant::now() + Duration::from_secs(u64::from(seconds));
    let pairs: u64 = runtime.block_on(async {
        let tasks: Vec<_> = (0..sessions)
            .map(|session| tokio::spawn(lock_until(end, port, session, batch)))
            .collect();
        let mut pairs = 0;
        for task in tasks {
            pairs += task.await??;
        }
        Outcome::Ok(pairs)
    })?;
    let rate = pairs / u64::from(seconds);
    println!("{sessions} sessions, batches of {batch}: {rate} pairs/s");
    Ok(())
}

/// Locks containers of its own in batches, and unlocks them; returns how many.
async fn lock_until(end: Instant, port: u16, session: u32, batch: u32) -> Outcome<u64> {
    let mut client = CatalogueClient::connect(format!("http://127.0.0.1:{port}")).await?;
    let (sender, receiver) = mpsc::channel(2);
    let name = Uuid::new_v4().into_bytes().to_vec();
    let hello = Hello { federation: "test.fed".into(), session: name, ..Hello::default() };
    sender.send(ClientTurn { hello: Some(hello), ..ClientTurn::default() }).await?;
    let mut turns = client.attend(ReceiverStream::new(receiver)).await?.into_inner();
    turns.message().await?;
    let target = |number| {
        let container = ContainerId(session * batch + number);
        Some(Target::from(LockTarget::Container(DatabaseId(1), container)))
    };
    let operation = |kind: Kind, number| Operation {
        kind: kind.into(),
        number: if kind == Kind::Unlock { 0 } else { u64::from(number) + 1 },
        owner: 1,
        target: target(number),
        ..Operation::default()
    };
    let mut pairs = 0;
    while Instant::now() < end {
        let locks = (0..batch).map(|number| operation(Kind::LockExclusive, number));
        let unlocks = (0..batch).map(|number| operation(Kind::Unlock, number));
        let operations = locks.chain(unlocks).collect();
        sender.send(ClientTurn { operations, ..ClientTurn::default() }).await?;
        let mut answered = 0;
        while answered < batch as usize {
            let turn = turns.message().await?.ok_or("the session ended")?;
            let refused = turn.outcomes.iter().find_map(|outcome| outcome.failure.as_ref());
            if let Some(failure) = refused {
                return Err(format!("refused: {failure:?}").into());
            }
            answered += turn.outcomes.len();
        }
        pairs += u64::from(batch);
    }
    Ok(pairs)
}
