//! Strategies for every message that the protocol can express.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use xrd::codes::{AttentionCode, Expect};
use xrd::flags::*;
use xrd::request::*;
use xrd::request::{AttributeAction, Fattr};
use xrd::response::{Attention, Redirect, Response, Status, StatusKind, Wait};
use xrd::segment::{CloneRange, Segment};
use xrd::{
    ErrorCode, Failure, FileHandle, Location, PathId, ProtocolVersion, QueryCode, RequestCode,
    SessionId, StreamId,
};

pub(crate) fn stream() -> impl Strategy<Value = StreamId> {
    any::<[u8; 2]>().prop_map(StreamId)
}

fn handle() -> impl Strategy<Value = FileHandle> {
    any::<[u8; 4]>().prop_map(FileHandle)
}

fn offset() -> impl Strategy<Value = u64> {
    0..1u64 << 63
}

fn length() -> impl Strategy<Value = u32> {
    0..1u32 << 31
}

fn bytes(most: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..most).prop_map(Bytes::from)
}

/// A location without line breaks, which separate locations in lists. It may have spaces, since `mv` sends its
/// length.
fn location() -> impl Strategy<Value = Location> {
    "/[ -~]{0,60}(\\?[!-~]{0,30})?".prop_map(|text| Location::new(text).unwrap())
}

fn target() -> impl Strategy<Value = FileRef> {
    prop_oneof![handle().prop_map(FileRef::Handle), location().prop_map(FileRef::Location)]
}

fn segment() -> impl Strategy<Value = Segment> {
    (handle(), length(), offset()).prop_map(|(handle, length, offset)| Segment {
        handle,
        length,
        offset,
    })
}

/// A segment short enough that a test can carry its data.
fn short_segment() -> impl Strategy<Value = Segment> {
    (handle(), 0..50u32, offset()).prop_map(|(handle, length, offset)| Segment {
        handle,
        length,
        offset,
    })
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    prop_oneof![session_request(), name_request(), file_request(), writing_request()]
}

fn session_request() -> impl Strategy<Value = Request> {
    let session = || any::<[u8; 16]>().prop_map(SessionId);
    let protocol = (any::<u32>(), any::<u8>(), 0..16u8).prop_map(|(version, options, expect)| {
        let (version, expect) = (ProtocolVersion(version), Expect(expect));
        Protocol { version, options: ProtocolOptions(options), expect }.into()
    });
    let login = (any::<i32>(), any::<[u8; 8]>(), any::<[u8; 3]>(), bytes(90)).prop_map(
        |(process, user, [more, ability, capability], opaque)| {
            let (ability, ability_more) = (Ability(ability), AbilityMore(more));
            let capability = Capability(capability);
            Login { process, user, ability_more, ability, capability, opaque }.into()
        },
    );
    let auth = (any::<[u8; 4]>(), bytes(300))
        .prop_map(|(protocol, credentials)| Auth { protocol, credentials }.into());
    let sigver = (any::<u16>(), any::<[u8; 3]>(), any::<u64>(), vec(any::<u8>(), 1..40)).prop_map(
        |(expects, [version, flags, crypto], sequence, signature)| {
            let (expects, flags) = (RequestCode(expects), SignatureFlags(flags));
            Sigver { expects, version, flags, sequence, crypto, signature: signature.into() }.into()
        },
    );
    prop_oneof![
        protocol,
        login,
        auth,
        sigver,
        session().prop_map(|session| Bind { session }.into()),
        session().prop_map(|session| Endsess { session }.into()),
        Just(Ping.into()),
        (any::<u8>(), bytes(50)).prop_map(|(modifier, text)| Set { modifier, text }.into()),
    ]
}

fn name_request() -> impl Strategy<Value = Request> {
    let stat = (any::<u8>(), any::<u32>(), target()).prop_map(|(options, wants, target)| {
        Stat { options: StatOptions(options), wants: StatWants(wants), target }.into()
    });
    let mkdir = (any::<u8>(), any::<u16>(), location()).prop_map(|(options, mode, location)| {
        Mkdir { options: MkdirOptions(options), mode: Mode(mode), location }.into()
    });
    let query = (any::<u16>(), handle(), bytes(90)).prop_map(|(kind, handle, argument)| {
        Query { kind: QueryCode(kind), handle, argument }.into()
    });
    let prepare = (any::<[u8; 2]>(), any::<[u16; 2]>(), vec(location(), 0..5)).prop_map(
        |([options, priority], [port, more], locations)| {
            let (options, more) = (PrepareOptions(options), PrepareMore(more));
            Prepare { options, priority, port, more, locations }.into()
        },
    );
    prop_oneof![
        stat,
        mkdir,
        query,
        prepare,
        (any::<u8>(), location()).prop_map(|(options, location)| {
            Dirlist { options: DirlistOptions(options), location }.into()
        }),
        (any::<u16>(), location()).prop_map(|(options, location)| {
            Locate { options: LocateOptions(options), location }.into()
        }),
        (any::<u16>(), location()).prop_map(|(mode, location)| Chmod {
            mode: Mode(mode),
            location
        }
        .into()),
        (location(), location()).prop_map(|(from, to)| Mv { from, to }.into()),
        location().prop_map(|location| Rm { location }.into()),
        location().prop_map(|location| Rmdir { location }.into()),
        (target(), offset()).prop_map(|(target, size)| Truncate { target, size }.into()),
        vec(location(), 0..5).prop_map(|locations| Statx { locations }.into()),
        attributes(),
    ]
}

fn attributes() -> impl Strategy<Value = Request> {
    let name = || "[!-~]{1,20}".prop_map(Bytes::from);
    let action = prop_oneof![
        Just(AttributeAction::List),
        vec(name(), 1..16).prop_map(AttributeAction::Get),
        vec(name(), 1..16).prop_map(AttributeAction::Delete),
        vec((name(), bytes(40)), 1..16).prop_map(AttributeAction::Set),
    ];
    (target(), any::<u8>(), action).prop_map(|(target, options, action)| {
        Fattr { target, options: FattrOptions(options), action }.into()
    })
}

fn file_request() -> impl Strategy<Value = Request> {
    let open = (any::<[u16; 3]>(), handle(), location()).prop_map(
        |([mode, options, template_options], template, location)| {
            let (mode, options) = (Mode(mode), OpenOptions(options));
            let template_options = OpenTemplateOptions(template_options);
            Open { mode, options, template_options, template, location }.into()
        },
    );
    let arguments = (any::<u8>(), vec(segment(), 0..4))
        .prop_map(|(path, ahead)| ReadArguments { path: PathId(path), ahead });
    let page_arguments = prop_oneof![
        Just((None, None)),
        any::<u8>().prop_map(|path| (Some(PathId(path)), None)),
        any::<[u8; 2]>().prop_map(|[path, flags]| (Some(PathId(path)), Some(PageFlags(flags)))),
    ];
    let range = (handle(), offset(), offset(), offset()).prop_map(
        |(source, source_offset, length, target_offset)| CloneRange {
            source,
            source_offset,
            length,
            target_offset,
        },
    );
    prop_oneof![
        open,
        handle().prop_map(|handle| Close { handle }.into()),
        handle().prop_map(|handle| Sync { handle }.into()),
        (segment(), proptest::option::of(arguments)).prop_map(|(segment, arguments)| Read {
            segment,
            arguments
        }
        .into()),
        (segment(), page_arguments).prop_map(|(segment, (path, flags))| PgRead {
            segment,
            path,
            flags
        }
        .into()),
        (any::<u8>(), vec(segment(), 1..20)).prop_map(|(path, segments)| ReadV {
            path: PathId(path),
            segments
        }
        .into()),
        (handle(), vec(range, 0..20))
            .prop_map(|(target, ranges)| CloneRanges { target, ranges }.into()),
    ]
}

/// Writes whose data are short enough that a test can carry them.
fn writing_request() -> impl Strategy<Value = Request> {
    let write = || {
        (handle(), offset(), any::<u8>(), 0..200u32).prop_map(|(handle, offset, path, length)| {
            Write { handle, offset, path: PathId(path), length }
        })
    };
    let pages =
        || {
            (write(), any::<u8>()).prop_map(|(Write { handle, offset, path, length }, flags)| {
                PgWrite { handle, offset, path, flags: PageFlags(flags), length }
            })
        };
    let many = || {
        (any::<u8>(), vec(short_segment(), 0..9))
            .prop_map(|(options, segments)| WriteV { options: WriteVOptions(options), segments })
    };
    let change = prop_oneof![
        write().prop_map(CheckpointWrite::Write),
        pages().prop_map(CheckpointWrite::PgWrite),
        many().prop_map(CheckpointWrite::WriteV),
        (handle(), offset()).prop_map(|(handle, size)| CheckpointWrite::Truncate { handle, size }),
    ];
    let checkpoint = prop_oneof![
        handle().prop_map(Chkpoint::Begin),
        handle().prop_map(Chkpoint::Commit),
        handle().prop_map(Chkpoint::Query),
        handle().prop_map(Chkpoint::Rollback),
        change.prop_map(Chkpoint::Execute),
    ];
    prop_oneof![
        write().prop_map(Request::from),
        pages().prop_map(Request::from),
        many().prop_map(Request::from),
        checkpoint.prop_map(Request::from),
    ]
}

/// Any response, with short data where it announces some.
pub(crate) fn response() -> impl Strategy<Value = Response> {
    let status =
        (0..33u16, 0..3u8, offset(), 0..200u32).prop_map(|(request, kind, offset, data_bytes)| {
            let (request, kind) = (RequestCode(3000 + request), StatusKind(kind));
            Response::Status(Status { request, kind, offset, data_bytes })
        });
    let delayed = (stream(), simple_response()).prop_map(|(stream, response)| {
        Response::Attn(Attention::Response { stream, response: Box::new(response) })
    });
    let message = bytes(50).prop_map(|parameters| {
        Response::Attn(Attention::Other { code: AttentionCode::MESSAGE, parameters })
    });
    prop_oneof![simple_response(), status, delayed, message]
}

fn simple_response() -> impl Strategy<Value = Response> {
    let text = || "[ -~]{0,40}";
    let host = (any::<u16>(), "[!-~]{1,40}")
        .prop_map(|(port, host)| Response::Redirect(Redirect::Host { port, host }));
    let url = (length(), "[!-~]{1,40}").prop_map(|(flags, url)| {
        Response::Redirect(Redirect::Url { flags: ServerFlags(flags), url })
    });
    prop_oneof![
        bytes(300).prop_map(Response::Ok),
        bytes(300).prop_map(Response::OkSoFar),
        bytes(300).prop_map(Response::AuthMore),
        (any::<u32>(), text())
            .prop_map(|(code, message)| Response::Error(Failure::new(ErrorCode(code), message))),
        (length(), text()).prop_map(|(seconds, message)| Response::Wait(Wait { seconds, message })),
        length().prop_map(Response::WaitResp),
        host,
        url,
    ]
}
