//! Named sets of bits. Unknown bits are kept as received.
//!
//! Source: the sections of each request and response in "The XRootD Protocol" 5.1.1, and the binary definitions of
//! 5.2.0.

macro_rules! flags {
    ($(#[$about:meta])* $name:ident: $number:ty {
        $($(#[$doc:ident $($text:tt)*])* $flag:ident = $value:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $number);

        bitflags::bitflags! {
            impl $name: $number {
                $($(#[$doc $($text)*])* const $flag = $value;)+
                // Unknown bits are valid.
                const _ = !0;
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(concat!(stringify!($name), "("))?;
                bitflags::parser::to_writer(self, &mut *formatter)?;
                formatter.write_str(")")
            }
        }
    };
}

flags! {
    /// Permissions, as in POSIX.
    Mode: u16 {
        /// The owner may read.
        OWNER_READ = 0o400,
        /// The owner may write.
        OWNER_WRITE = 0o200,
        /// The owner may execute, or search a directory.
        OWNER_EXECUTE = 0o100,
        /// The group may read.
        GROUP_READ = 0o040,
        /// The group may write.
        GROUP_WRITE = 0o020,
        /// The group may execute, or search a directory.
        GROUP_EXECUTE = 0o010,
        /// Others may read.
        OTHER_READ = 0o004,
        /// Others may write.
        OTHER_WRITE = 0o002,
        /// Others may execute, or search a directory.
        OTHER_EXECUTE = 0o001,
    }
}

flags! {
    /// Options of kXR_open.
    OpenOptions: u16 {
        /// Read compressed files as they are.
        COMPRESS = 0x0001,
        /// Create the file, or truncate an existing one.
        DELETE = 0x0002,
        /// Open the file even if sharing rules forbid it.
        FORCE = 0x0004,
        /// Create the file; with neither this nor [`OpenOptions::DELETE`] it must exist.
        NEW = 0x0008,
        /// Open for reading.
        READ = 0x0010,
        /// Open for reading and writing.
        UPDATE = 0x0020,
        /// The client accepts delayed answers.
        ASYNC = 0x0040,
        /// Refresh the cached location of the file.
        REFRESH = 0x0080,
        /// Create the directories of the path; servers also accept [`OpenOptions::ASYNC`] with `NEW`
        /// or `DELETE` to mean it.
        MAKE_PATH = 0x0100,
        /// Open for appending.
        APPEND = 0x0200,
        /// Put the file's stat line into the answer.
        RETURN_STAT = 0x0400,
        /// The file will be a replica.
        REPLICA = 0x0800,
        /// Keep the file only if it is closed properly.
        PERSIST_ON_CLOSE = 0x1000,
        /// Do not wait for a file that is not online.
        NO_WAIT = 0x2000,
        /// The file is read from front to back.
        SEQUENTIAL = 0x4000,
        /// Open for writing only.
        WRITE_ONLY = 0x8000,
    }
}

flags! {
    /// More options of kXR_open (5.2.0, `optiont`).
    OpenTemplateOptions: u16 {
        /// Duplicate the file of the template's handle.
        DUPLICATE = 0x0001,
        /// LocatedServer the file on the file system of the template.
        SAME_FILE_SYSTEM = 0x0002,
        /// Put the extended stat line into the answer.
        RETURN_EXTENDED_STAT = 0x0004,
        /// Read and write past the page cache.
        DIRECT_IO = 0x0008,
    }
}

flags! {
    /// Options of kXR_locate.
    LocateOptions: u16 {
        /// List each host once.
        UNIQUE_HOSTS = 0x0001,
        /// Include servers that do not answer.
        FORCE = 0x0004,
        /// Refresh the cached locations.
        REFRESH = 0x0080,
        /// Prefer host names to addresses.
        PREFER_NAMES = 0x0100,
        /// A directory will be listed at these servers.
        FOR_DIRLIST = 0x0400,
        /// Answer with the locations known now.
        NO_WAIT = 0x2000,
    }
}

flags! {
    /// Options of kXR_dirlist.
    DirlistOptions: u8 {
        /// List only files that are online.
        ONLINE = 0x01,
        /// A stat line for each entry.
        STAT = 0x02,
        /// A stat line and a checksum for each entry.
        CHECKSUM = 0x04,
        /// Extended stat lines (5.2.0).
        EXTENDED_STAT = 0x08,
    }
}

flags! {
    /// The stat line's flags.
    StatFlags: u32 {
        /// It can be executed, or searched.
        EXECUTABLE = 1,
        /// It is a directory.
        DIRECTORY = 2,
        /// It is neither a file nor a directory.
        OTHER = 4,
        /// It is not online.
        OFFLINE = 8,
        /// It can be read.
        READABLE = 16,
        /// It can be written.
        WRITABLE = 32,
        /// It was opened with [`OpenOptions::PERSIST_ON_CLOSE`] and not closed yet.
        PERSIST_PENDING = 64,
        /// It has a copy in mass storage.
        BACKED_UP = 128,
        /// The server is a cache; the access time encodes how much of the file it has.
        CACHE = 512,
    }
}

flags! {
    /// Options of kXR_stat.
    StatOptions: u8 {
        /// Get the space of the file system.
        FILE_SYSTEM = 0x01,
    }
}

flags! {
    /// Additional fields of kXR_stat (5.2.0).
    StatWants: u32 {
        /// The creation time.
        BIRTH_TIME = 0x01,
    }
}

flags! {
    /// Options of kXR_mkdir.
    MkdirOptions: u8 {
        /// Create missing parents.
        MAKE_PATH = 0x01,
    }
}

flags! {
    /// Options of page reads and writes (kXR_pgread, kXR_pgwrite).
    PageFlags: u8 {
        /// Read: check the checksums again. Write: these pages had wrong checksums before.
        RETRY = 0x01,
    }
}

flags! {
    /// Options of kXR_writev.
    WriteVOptions: u8 {
        /// Sync before answering.
        SYNC = 0x01,
    }
}

flags! {
    /// Options of kXR_prepare.
    PrepareOptions: u8 {
        /// Cancel an earlier request.
        CANCEL = 1,
        /// Notify when a file is online.
        NOTIFY = 2,
        /// Do not notify of errors.
        NO_ERRORS = 4,
        /// Bring the files from mass storage.
        STAGE = 8,
        /// The files will be written.
        WRITE = 16,
        /// LocatedServer them where the first one is.
        COLOCATE = 32,
        /// Update their access times.
        FRESH = 64,
        /// Notify by TCP.
        USE_TCP = 128,
    }
}

flags! {
    /// More options of kXR_prepare (`optionX`).
    PrepareMore: u16 {
        /// The files are no longer needed.
        EVICT = 0x0001,
    }
}

flags! {
    /// The client's abilities (kXR_login, `ability`).
    Ability: u8 {
        /// It follows redirects to full URLs.
        FULL_URL = 0x01,
        /// It speaks several protocols; it follows full URLs, too.
        MULTI_PROTOCOL = 0x03,
        /// It follows redirects of reads.
        READ_REDIRECT = 0x04,
        /// It has IPv6 and IPv4.
        DUAL_STACK = 0x08,
        /// It has only a private IPv4 address.
        PRIVATE_IPV4 = 0x10,
        /// It has only a private IPv6 address.
        PRIVATE_IPV6 = 0x20,
        /// It can open files of its own machine.
        LOCAL_FILE = 0x40,
        /// It understands the flags of redirects.
        REDIRECT_FLAGS = 0x80,
    }
}

flags! {
    /// More abilities (kXR_login, `ability2`).
    AbilityMore: u8 {
        /// It follows redirects to erasure-coded files.
        ERASURE_CODED = 0x01,
    }
}

flags! {
    /// Options of kXR_protocol.
    ProtocolOptions: u8 {
        /// Answer with the signing requirements.
        SECURITY = 0x01,
        /// The client can use TLS.
        ABLE_TLS = 0x02,
        /// The client wants TLS now.
        WANT_TLS = 0x04,
        /// Answer with the interfaces to bind streams to.
        BIND_INTERFACES = 0x08,
    }
}

flags! {
    /// The server's role, features and requirements (the answer to kXR_protocol).
    ServerFlags: u32 {
        /// It has files.
        SERVER = 0x0000_0001,
        /// It locates files on other servers.
        MANAGER = 0x0000_0002,
        /// It is a cache.
        CACHE = 0x0000_0080,
        /// It is a meta manager.
        META = 0x0000_0100,
        /// It is a proxy.
        PROXY = 0x0000_0200,
        /// It is a supervisor.
        SUPERVISOR = 0x0000_0400,
        /// It redirects to itself by other names.
        VIRTUAL_REDIRECT = 0x0000_0800,
        /// On a redirect: writes can be recovered.
        RECOVER_WRITES = 0x0000_1000,
        /// On a redirect: forget the previous redirectors.
        COLLAPSE_REDIRECT = 0x0000_2000,
        /// On a redirect: the file is erasure-coded.
        ERASURE_CODED = 0x0000_4000,
        /// It supports [`OpenOptions::PERSIST_ON_CLOSE`].
        PERSIST_ON_CLOSE = 0x0010_0000,
        /// It supports pgread and pgwrite.
        PAGES = 0x0020_0000,
        /// It supports gpfile.
        GPFILE = 0x0040_0000,
        /// It supports gpfile without a login.
        ANONYMOUS_GPFILE = 0x0080_0000,
        /// Data need TLS.
        TLS_DATA = 0x0100_0000,
        /// gpfile needs TLS.
        TLS_GPFILE = 0x0200_0000,
        /// A login needs TLS.
        TLS_LOGIN = 0x0400_0000,
        /// A session needs TLS after the login.
        TLS_SESSION = 0x0800_0000,
        /// Copies between servers need TLS.
        TLS_TPC = 0x1000_0000,
        /// gpfile without a login needs TLS.
        TLS_ANONYMOUS_GPFILE = 0x2000_0000,
        /// TLS starts immediately after this answer.
        GO_TO_TLS = 0x4000_0000,
        /// It can use TLS.
        HAVE_TLS = 0x8000_0000,
    }
}

flags! {
    /// The coverage of a signature (kXR_sigver).
    SignatureFlags: u8 {
        /// The request's data were not hashed.
        NO_DATA = 0x01,
    }
}

flags! {
    /// Options of kXR_fattr.
    FattrOptions: u8 {
        /// Set: the attribute must not exist yet.
        NEW = 0x01,
        /// List: include values.
        VALUES = 0x10,
    }
}
