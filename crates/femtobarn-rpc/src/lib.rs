//! The catalogue and the locks of a federation over gRPC: the messages, what they mean in
//! `femtobarn-catalog`'s words, and a client that is a catalogue like the local one.
