//! Named numbers: requests, statuses, errors, and the kinds of a few messages.
//!
//! Every one is a newtype, so that an unknown number is kept as received. Source: "The XRootD Protocol" 5.1.1, sections
//! 2, 3 and 5, and the binary definitions of 5.2.0.

macro_rules! codes {
    ($(#[$about:meta])* $name:ident: $number:ty {
        $($(#[$doc:meta])* $code:ident = $value:literal $text:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $number);

        impl $name {
            $($(#[$doc])* pub const $code: $name = $name($value);)+

            /// The protocol's name, if this version has one.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)+
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => formatter.write_str(name),
                    None => write!(formatter, "{}", self.0),
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, "{}({self})", stringify!($name))
            }
        }
    };
}

codes! {
    /// The kind of a request (section 3).
    RequestCode: u16 {
        /// Authenticate.
        AUTH = 3000 "auth",
        /// Ask for information.
        QUERY = 3001 "query",
        /// Change permissions.
        CHMOD = 3002 "chmod",
        /// Close a file.
        CLOSE = 3003 "close",
        /// List a directory.
        DIRLIST = 3004 "dirlist",
        /// Get or put a file; no implementation supports it.
        GPFILE = 3005 "gpfile",
        /// Agree on the protocol's version and on TLS.
        PROTOCOL = 3006 "protocol",
        /// Start a session.
        LOGIN = 3007 "login",
        /// Make a directory.
        MKDIR = 3008 "mkdir",
        /// Rename.
        MV = 3009 "mv",
        /// Open a file.
        OPEN = 3010 "open",
        /// Check that the server answers.
        PING = 3011 "ping",
        /// Begin, end or write in a checkpoint.
        CHKPOINT = 3012 "chkpoint",
        /// Read.
        READ = 3013 "read",
        /// Remove a file.
        RM = 3014 "rm",
        /// Remove a directory.
        RMDIR = 3015 "rmdir",
        /// Sync a file.
        SYNC = 3016 "sync",
        /// Get a file's metadata.
        STAT = 3017 "stat",
        /// Pass information about the session.
        SET = 3018 "set",
        /// Write.
        WRITE = 3019 "write",
        /// Read and change extended attributes.
        FATTR = 3020 "fattr",
        /// Stage files, and more.
        PREPARE = 3021 "prepare",
        /// Get the metadata of many files.
        STAT_X = 3022 "statx",
        /// End a session.
        ENDSESS = 3023 "endsess",
        /// Add a connection to a session.
        BIND = 3024 "bind",
        /// Read many segments.
        READ_V = 3025 "readv",
        /// Write pages with checksums.
        PG_WRITE = 3026 "pgwrite",
        /// Ask where a file is.
        LOCATE = 3027 "locate",
        /// Change a file's size.
        TRUNCATE = 3028 "truncate",
        /// Sign the next request.
        SIGVER = 3029 "sigver",
        /// Read pages with checksums.
        PG_READ = 3030 "pgread",
        /// Write many segments.
        WRITE_V = 3031 "writev",
        /// Copy ranges of files without moving the data (5.2.0).
        CLONE = 3032 "clone",
    }
}

codes! {
    /// The status of a response (section 2).
    StatusCode: u16 {
        /// The whole answer, or the last part of it.
        OK = 0 "ok",
        /// A part of the answer; more follow.
        OK_SO_FAR = 4000 "oksofar",
        /// An unsolicited message, or a delayed answer.
        ATTN = 4001 "attn",
        /// Authentication continues.
        AUTH_MORE = 4002 "authmore",
        /// The request failed.
        ERROR = 4003 "error",
        /// Ask another server.
        REDIRECT = 4004 "redirect",
        /// Ask again later.
        WAIT = 4005 "wait",
        /// The answer follows later.
        WAIT_RESP = 4006 "waitresp",
        /// An answer with a checksum, followed by data.
        STATUS = 4007 "status",
    }
}

codes! {
    /// Why a request failed (section 5).
    ErrorCode: u32 {
        /// An argument is invalid.
        ARG_INVALID = 3000 "ArgInvalid",
        /// An argument is missing.
        ARG_MISSING = 3001 "ArgMissing",
        /// An argument is too long.
        ARG_TOO_LONG = 3002 "ArgTooLong",
        /// The file is locked.
        FILE_LOCKED = 3003 "FileLocked",
        /// The handle names no open file.
        FILE_NOT_OPEN = 3004 "FileNotOpen",
        /// The file system failed.
        FS_ERROR = 3005 "FSError",
        /// The request is unknown, or not allowed in this state.
        INVALID_REQUEST = 3006 "InvalidRequest",
        /// Reading or writing failed.
        IO_ERROR = 3007 "IOError",
        /// Memory is short.
        NO_MEMORY = 3008 "NoMemory",
        /// The disk is full.
        NO_SPACE = 3009 "NoSpace",
        /// Permission is denied.
        NOT_AUTHORIZED = 3010 "NotAuthorized",
        /// The file does not exist.
        NOT_FOUND = 3011 "NotFound",
        /// The server failed.
        SERVER_ERROR = 3012 "ServerError",
        /// The server does not support the request.
        UNSUPPORTED = 3013 "Unsupported",
        /// No server is available.
        NO_SERVER = 3014 "NoServer",
        /// It is not a file.
        NOT_FILE = 3015 "NotFile",
        /// It is a directory.
        IS_DIRECTORY = 3016 "IsDirectory",
        /// The request was cancelled.
        CANCELLED = 3017 "Cancelled",
        /// It exists; also: a directory is not empty.
        IT_EXISTS = 3018 "ItExists",
        /// A checksum is wrong.
        CHECKSUM_ERROR = 3019 "ChkSumErr",
        /// The operation is in progress already.
        IN_PROGRESS = 3020 "InProgress",
        /// A quota is used up.
        OVER_QUOTA = 3021 "OverQuota",
        /// A signature is wrong.
        SIGNATURE_ERROR = 3022 "SigVerErr",
        /// Decryption failed.
        DECRYPT_ERROR = 3023 "DecryptErr",
        /// The server is overloaded.
        OVERLOADED = 3024 "Overloaded",
        /// The file system is read-only.
        FS_READ_ONLY = 3025 "FSReadOnly",
        /// The data cannot be understood.
        BAD_PAYLOAD = 3026 "BadPayload",
        /// The attribute does not exist.
        ATTRIBUTE_NOT_FOUND = 3027 "AttrNotFound",
        /// TLS is needed.
        TLS_REQUIRED = 3028 "TLSRequired",
        /// No server is left for a replica.
        NO_REPLICAS = 3029 "NoReplicas",
        /// Authentication failed.
        AUTH_FAILED = 3030 "AuthFailed",
        /// The operation is impossible.
        IMPOSSIBLE = 3031 "Impossible",
        /// It is in conflict with another request.
        CONFLICT = 3032 "Conflict",
        /// Too many errors.
        TOO_MANY_ERRORS = 3033 "TooManyErrs",
        /// The request took too long.
        REQUEST_TIMED_OUT = 3034 "ReqTimedOut",
        /// A timer ran out.
        TIMER_EXPIRED = 3035 "TimerExpired",
    }
}

codes! {
    /// The kind of a query (section 3, kXR_query).
    QueryCode: u16 {
        /// The server's statistics, as XML.
        STATS = 1 "stats",
        /// The state of a prepare request.
        PREPARE = 2 "prepare",
        /// A file's checksum.
        CHECKSUM = 3 "cksum",
        /// A file's attributes.
        XATTR = 4 "xattr",
        /// The space of a file system.
        SPACE = 5 "space",
        /// Cancel the computing of a checksum.
        CHECKSUM_CANCEL = 6 "ckscan",
        /// Values of the server's configuration.
        CONFIG = 7 "config",
        /// Anything about an open file.
        VISA = 8 "visa",
        /// Information about a file (5.2.0).
        FILE_INFO = 9 "Finfo",
        /// Information about a file system (5.2.0).
        FS_INFO = 10 "FSinfo",
        /// Opaque to the protocol.
        OPAQUE = 16 "opaque",
        /// Opaque, and about a file by name.
        OPAQUE_FILE = 32 "opaquf",
        /// Opaque, and about an open file.
        OPAQUE_OPEN = 64 "opaqug",
    }
}

codes! {
    /// The kind of an attn response (section 2, kXR_attn).
    AttentionCode: u32 {
        /// A message for the user.
        MESSAGE = 5002 "asyncms",
        /// The answer to a request whose client was asked to wait for it.
        RESPONSE = 5008 "asynresp",
    }
}

codes! {
    /// The purpose of a connection (section 3, kXR_protocol).
    Expect: u8 {
        /// Unknown.
        NONE = 0 "none",
        /// It will be bound to a session.
        BIND = 1 "bind",
        /// Files will be got and put.
        GPF = 2 "gpf",
        /// It will log in.
        LOGIN = 3 "login",
        /// It will copy from server to server.
        TPC = 4 "tpc",
        /// Files will be got and put anonymously.
        GPFA = 8 "gpfa",
    }
}
