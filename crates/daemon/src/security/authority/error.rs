//! [`AuthorityError`], and the files of an authority, whose errors name them.

use std::fs::{self};
use std::io;
use std::path::{Path, PathBuf};

use daemon_protocol::Name;
use serde::Serialize;
use thiserror::Error;

use crate::files;
use crate::security::member::IdentityError;

/// Why no certificate was made.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// There is a rack already.
    #[error("{} already holds a rack: choose another directory", .0.display())]
    Exists(PathBuf),
    /// A certificate could not be made or read.
    #[error("cannot make the certificate")]
    Certificate(#[from] rcgen::Error),
    /// A file could not be read or written.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The card does not fit the key that was made for it.
    #[error(
        "the card is not for the key {}: sign the request in its directory",
        .0.display()
    )]
    OtherKey(PathBuf),
    /// There is no certificate to revoke.
    #[error("no valid certificate of {0} signed by this authority")]
    NotSigned(Name),
    /// The card is malformed.
    #[error("invalid card: {0}")]
    Card(String),
}

pub(super) fn in_file(path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |error| IdentityError::File { path, error }
}

pub(super) fn make_directory(path: &Path) -> Result<(), AuthorityError> {
    Ok(files::private_directory(path).map_err(in_file(path))?)
}

pub(super) fn put(path: &Path, content: &[u8], mode: u32) -> Result<(), AuthorityError> {
    Ok(files::write(path, content, mode).map_err(in_file(path))?)
}

pub(super) fn put_toml<T: Serialize>(path: &Path, value: &T) -> Result<(), AuthorityError> {
    let text = toml::to_string(value).expect("names and addresses can always be written");
    put(path, text.as_bytes(), 0o644)
}

pub(super) fn get(path: &Path) -> Result<String, AuthorityError> {
    Ok(fs::read_to_string(path).map_err(in_file(path))?)
}
