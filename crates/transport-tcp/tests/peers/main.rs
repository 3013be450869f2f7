//! Hosts over TCP and what their peers do: those that keep the rules, break them, or fall silent.

#[path = "../common/mod.rs"]
mod common;
mod hostile;
mod serving;
mod silence;
