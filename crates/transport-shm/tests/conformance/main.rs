//! The suite of all transports over shared memory: between threads, between hosts, and where no memory
//! is mapped.

#![cfg(not(loom))]

mod hosts;
mod threads;
mod unmapped;
