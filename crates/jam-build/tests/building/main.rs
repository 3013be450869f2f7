//! What is built of jams and rieds, and what they may not have.

mod blobs;
#[path = "../common/mod.rs"]
mod common;
mod errors;
mod features;
mod rieds;
