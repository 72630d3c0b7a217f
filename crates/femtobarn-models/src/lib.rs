//! Models of the protocols on which Femtobarn's invariants rest, small enough to be explored exhaustively. Users need
//! nothing of this crate.
//!
//! | module | protocol | invariants of ARCHITECTURE.md |
//! |---|---|---|
//! | [`publishing`] | a commit whose answer is lost is sent again, to its server and to another one | 3, 4 |
//! | [`leases`] | leases of servers, renewal and taking over | 8 |
//! | [`homes`] | fences of a home, taking over, and programs in the folder of a server that has ended | 3, 8 |
//! | [`moves`] | a database moves to the disk of another server | 3, 8 |
//! | [`succession`] | a copy follows its leader, and is promoted | 7 |
//! | [`residence`] | copies of a sealed file in stores, eviction and staging | 6 |
//!
//! Each model consists of the knowledge of its participants, the steps that the code makes, and the faults that may
//! strike between any two steps. A *guard* is a measure of the code against one of the faults. Without any one of its
//! guards a model has to violate an invariant; otherwise it would prove nothing about that guard.

pub mod explorer;
pub mod homes;
pub mod leases;
pub mod moves;
pub mod publishing;
pub mod residence;
pub mod succession;
