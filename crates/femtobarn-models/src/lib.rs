//! Models of the protocols that Femtobarn's invariants rest on, small enough to be explored as a whole. It has
//! nothing for users.
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
//! Each model has what its participants know, the steps that the code takes, and the faults that may strike between
//! any two of them. A *guard* is what the code does against one of these; a model without one of its guards has to
//! violate an invariant, else it would prove nothing about the guard.

pub mod explorer;
pub mod homes;
pub mod leases;
pub mod moves;
pub mod publishing;
pub mod residence;
pub mod succession;
