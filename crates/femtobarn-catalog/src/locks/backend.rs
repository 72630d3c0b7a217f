//! The two backends of locks and pins.

/// Something that has one form for the kernel's locks and one for locks on lease from a server.
#[derive(Clone, Debug)]
pub(super) enum Backend<K, L> {
    /// Locked in the kernel, through the files of the federation's folder.
    Kernel(K),
    /// Locked by a server for the client's session.
    Leased(L),
}
