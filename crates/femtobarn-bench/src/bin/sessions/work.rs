//! The requests of busy sessions: of a file over XRootD ([`Reader`]), or for locks of containers over gRPC ([`Locks`]).

use femtobarn_bench::{Outcome, Random};
use xrd::request::{Close, FileRef, Open, PgRead, Read, ReadV, Request, Stat};
use xrd::response::{Answer, OpenAnswer, StatLine};
use xrd::segment::Segment;
use xrd::{FileHandle, Location, flags::OpenOptions};

use crate::connection::Connection;
use crate::locks::Locks;

/// The request that a session repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Read(u32),
    PgRead(u32),
    ReadV { count: u64, bytes: u32 },
    Open,
    Stat,
    Redirect,
    Lock(u32),
}

/// A session that is logged in.
pub(crate) enum Session {
    File(Box<Reader>),
    Locks(Box<Locks>),
}

/// The data of one answer: requests or locks, and bytes of file content.
pub(crate) struct Answered {
    pub items: u64,
    pub bytes: u64,
}

/// An XRootD session. The file is open if the work reads it.
pub(crate) struct Reader {
    connection: Connection,
    work: Work,
    path: String,
    file: FileHandle,
    size: u64,
    random: Random,
}

impl Session {
    /// Connects, logs in, and opens the file if the work reads it.
    pub(crate) async fn open(work: Work, address: &str, place: &str, number: u64) -> Outcome<Self> {
        if let Work::Lock(count) = work {
            let locks = Locks::open(address, place, number, count).await?;
            return Ok(Session::Locks(Box::new(locks)));
        }
        let mut connection = Connection::open(address).await?;
        let (mut file, mut size) = (FileHandle::default(), 0);
        if matches!(work, Work::Read(_) | Work::PgRead(_) | Work::ReadV { .. }) {
            let answer = OpenAnswer::decode(&connection.ask(open(place)?).await?.body)?;
            (file, size) = (answer.handle, answer.stat.map_or(0, |stat| stat.size));
        }
        let (path, random) = (place.to_owned(), Random::of(number));
        Ok(Session::File(Box::new(Reader { connection, work, path, file, size, random })))
    }

    /// Sends the request once, and waits for the whole answer.
    pub(crate) async fn ask(&mut self) -> Outcome<Answered> {
        match self {
            Session::File(reader) => Ok(Answered { items: 1, bytes: reader.ask().await? }),
            Session::Locks(locks) => Ok(Answered { items: locks.ask().await?, bytes: 0 }),
        }
    }
}

impl Reader {
    /// Sends the request once; returns the number of bytes of file content in the answer.
    async fn ask(&mut self) -> Outcome<u64> {
        let request: Request = match self.work {
            Work::Read(bytes) => Read { segment: self.piece(bytes), arguments: None }.into(),
            Work::PgRead(bytes) => {
                PgRead { segment: self.piece(bytes), path: None, flags: None }.into()
            }
            Work::ReadV { count, bytes } => self.neighbours(count, bytes),
            Work::Open => return self.open_and_close().await,
            Work::Redirect => {
                return self.connection.be_redirected(open(&self.path)?).await.map(|()| 0);
            }
            _ => stat(FileRef::Location(Location::new(self.path.clone())?)),
        };
        Ok(self.connection.ask(request).await?.bytes)
    }

    fn piece(&mut self, bytes: u32) -> Segment {
        let pieces = (self.size / u64::from(bytes)).max(1);
        let offset = self.random.below(pieces) * u64::from(bytes);
        Segment { handle: self.file, length: bytes, offset }
    }

    /// A vector read of adjacent pieces, such as a reader of columns sends.
    fn neighbours(&mut self, count: u64, bytes: u32) -> Request {
        let all = count * u64::from(bytes);
        let first = self.piece(bytes).offset.min(self.size.saturating_sub(all));
        let at = |n| first + n * u64::from(bytes);
        let segments =
            (0..count).map(|n| Segment { handle: self.file, length: bytes, offset: at(n) });
        ReadV { path: Default::default(), segments: segments.collect() }.into()
    }

    async fn open_and_close(&mut self) -> Outcome<u64> {
        let opened = self.connection.ask(open(&self.path)?).await?;
        let file = OpenAnswer::decode(&opened.body)?.handle;
        StatLine::decode(&self.connection.ask(stat(FileRef::Handle(file))).await?.body)?;
        self.connection.ask(Close { handle: file }.into()).await?;
        Ok(0)
    }
}

fn open(path: &str) -> Outcome<Request> {
    Ok(Open {
        mode: Default::default(),
        options: OpenOptions::READ | OpenOptions::RETURN_STAT,
        template_options: Default::default(),
        template: Default::default(),
        location: Location::new(path.to_owned())?,
    }
    .into())
}

fn stat(target: FileRef) -> Request {
    Stat { options: Default::default(), wants: Default::default(), target }.into()
}

impl std::str::FromStr for Work {
    type Err = Box<dyn std::error::Error + Send + Sync>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, size) = text.split_once('-').unwrap_or((text, ""));
        Ok(match (kind, size) {
            ("open", "") => Work::Open,
            ("stat", "") => Work::Stat,
            ("redirect", "") => Work::Redirect,
            ("lock", count) => Work::Lock(count.parse()?),
            ("read", bytes) => Work::Read(bytes.parse()?),
            ("pgread", bytes) => Work::PgRead(bytes.parse()?),
            ("readv", size) => {
                let (count, bytes) = size.split_once('x').ok_or("readv-COUNTxBYTES")?;
                Work::ReadV { count: count.parse()?, bytes: bytes.parse()? }
            }
            _ => return Err(format!("there is no work {text}").into()),
        })
    }
}
