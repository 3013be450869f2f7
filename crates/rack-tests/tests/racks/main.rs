//! Racks of every kind in one process, beyond the behaviours of `api`: how they begin and end, and what
//! holds in them throughout. One program, since each that stands on the same crates costs as much to
//! link, and to check with each choice of features.

#[path = "../common/mod.rs"]
mod common;
mod counting;
mod encoding;
mod endings;
mod files;
mod initialisers;
mod leaving;
mod losses;
mod placement;
mod segments;
mod thesis;
