//! The suite of segments on every transport that needs no device: between threads of one host, over
//! shared memory, over TCP with and without TLS, and where no memory is mapped.

#![cfg(not(loom))]

mod shm;
#[path = "../tcp/mod.rs"]
mod tcp;
mod tcp_insecure;
mod tcp_local;
mod tcp_tls;
mod threads;
mod unmapped;
