//! Graphs on a rack: the Graph500 benchmark, and questions about graphs in files, on the public
//! interface of Gossamer only.
//!
//! It is an example of an irregular parallel program: who sends what to whom depends on the data. All of
//! it is one [`Team`](gossamer::Team), a fiber on every thread of the rack, which work in step:
//!
//! 1. `layout.rs`: which member has which vertex.
//! 2. `graph.rs`: a member's rows of the graph, and how the team builds them: one `all_to_all` after the
//!    other.
//! 3. `exchange.rs`: exchanges of more than a message holds. `bfs.rs`: the shortest search there is, to
//!    read first. `sssp.rs`: shortest paths. `components.rs` and `pagerank.rs`.
//! 4. `random.rs`, `kronecker.rs`: the graph of the benchmark. `validate.rs`, `statistics.rs`,
//!    `graph500.rs`: the benchmark.
//! 5. `read/`: graphs in files. `memory.rs`: whether they fit. `questions.rs`: what is asked of them.

#![forbid(unsafe_code)]

pub mod bfs;
pub mod components;
mod exchange;
pub mod graph;
pub mod graph500;
pub mod kronecker;
pub mod layout;
pub mod memory;
pub mod pagerank;
pub mod questions;
pub mod random;
pub mod read;
pub mod sssp;
pub mod statistics;
pub mod validate;
