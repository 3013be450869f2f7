//! The suite of mailboxes on every transport that needs no device.

#![cfg(not(loom))]

mod shm;
mod tcp;
mod threads;
mod unmapped;
