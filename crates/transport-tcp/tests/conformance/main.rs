//! The suite of all transports over TCP: with and without TLS, of one host to itself, and between hosts
//! with many connections.

#[path = "../common/mod.rs"]
mod common;
mod insecure;
mod local;
mod many;
mod tls;
