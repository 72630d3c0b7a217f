//! Versions of the protocol.

/// A version of the protocol: 0x520 is 5.2.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProtocolVersion(pub u32);

impl ProtocolVersion {
    /// The version that this crate implements.
    pub const CURRENT: ProtocolVersion = ProtocolVersion(0x520);
    /// The first one with TLS and extended attributes.
    pub const TLS: ProtocolVersion = ProtocolVersion(0x500);
    /// The first one with pgread and pgwrite.
    pub const PAGES: ProtocolVersion = ProtocolVersion(0x511);
    /// The first one with clone and templates of open.
    pub const CLONE: ProtocolVersion = ProtocolVersion(0x520);
    /// The first one with signed requests.
    pub const SIGNED: ProtocolVersion = ProtocolVersion(0x310);
}
