//! The file that holds the secret of a job.
//!
//! The file is opened once, and the checks apply to the open file: its name may lead to another one
//! a moment later. The content of a file that is refused never appears in an error.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;
use thiserror::Error;

use crate::secret::Secret;

/// Bytes that are read at most: a secret and white space around it.
const LARGEST: u64 = 256;

/// The permissions that the file may have.
const ALLOWED: u32 = 0o600;

/// A file does not give a secret.
#[derive(Debug, Error)]
pub enum SecretFileError {
    /// It cannot be read.
    #[error("cannot read it")]
    Read(#[from] io::Error),
    /// It is a directory, a pipe or a device.
    #[error("not a regular file")]
    NotAFile,
    /// It belongs to another user.
    #[error("owned by user {owner}, but this process runs as user {user}: chown it")]
    Owner {
        /// The owner of the file.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// Its mode lets others than its owner use it.
    #[error("mode {mode:04o}, but 0600 or stricter is required: chmod 600 it")]
    Mode {
        /// Its permissions.
        mode: u32,
    },
    /// It is empty.
    #[error("empty: `gossamer secret --file PATH` writes a secret")]
    Empty,
    /// Its content is not a secret.
    #[error("not 64 hexadecimal digits: `gossamer secret --file PATH` writes a secret")]
    NotASecret,
}

/// Reads the secret in the file at `path`.
pub(crate) fn read(path: &Path) -> Result<Secret, SecretFileError> {
    // Opening a pipe would otherwise wait for a writer.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(SecretFileError::NotAFile);
    }
    check(metadata.uid(), geteuid().as_raw(), metadata.mode() & 0o7777)?;
    let mut text = Vec::new();
    file.take(LARGEST).read_to_end(&mut text)?;
    if text.trim_ascii().is_empty() {
        return Err(SecretFileError::Empty);
    }
    let text = std::str::from_utf8(&text).map_err(|_| SecretFileError::NotASecret)?;
    text.parse().map_err(|_| SecretFileError::NotASecret)
}

/// Refuses a file that others than `user` could have written or can read.
fn check(owner: u32, user: u32, mode: u32) -> Result<(), SecretFileError> {
    if owner != user {
        return Err(SecretFileError::Owner { owner, user });
    }
    if mode & !ALLOWED != 0 {
        return Err(SecretFileError::Mode { mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    fn directory() -> TempDir {
        tempfile::tempdir().expect("a directory")
    }

    /// The file `secret` in `directory`, with this content and mode.
    fn file(directory: &TempDir, content: &str, mode: u32) -> PathBuf {
        let path = directory.path().join("secret");
        fs::write(&path, content).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
        path
    }

    #[test]
    fn a_private_file_gives_the_secret() {
        let directory = directory();
        let text = format!("{}\n", Secret::new([3; 32]).to_hex());
        let secret = read(&file(&directory, &text, 0o600)).expect("a secret");
        assert_eq!(secret, Secret::new([3; 32]));
        // Root may read a file with any mode, so only the check is asked about others.
        for mode in [0o600, 0o400, 0] {
            assert!(check(7, 7, mode).is_ok(), "{mode:o}");
        }
    }

    #[test]
    fn a_file_that_others_may_use_is_refused() {
        let directory = directory();
        let text = Secret::new([3; 32]).to_hex();
        for mode in [0o644, 0o660, 0o620, 0o606, 0o601, 0o700] {
            let error = read(&file(&directory, &text, mode)).expect_err("a public secret");
            assert!(matches!(error, SecretFileError::Mode { mode: m } if m == mode), "{error}");
            assert!(error.to_string().contains(&format!("mode 0{mode:o}")), "{error}");
            fs::remove_file(directory.path().join("secret")).expect("the file");
        }
        let error = check(0, 1000, 0o600).expect_err("a secret of another user");
        assert!(matches!(error, SecretFileError::Owner { owner: 0, user: 1000 }), "{error}");
    }

    #[test]
    fn content_that_is_not_a_secret_is_refused_and_not_shown() {
        let directory = directory();
        for text in ["", " \n"] {
            let error = read(&file(&directory, text, 0o600)).expect_err("nothing");
            assert!(matches!(error, SecretFileError::Empty), "{error}");
        }
        for text in ["password", &"ab".repeat(200)] {
            let error = read(&file(&directory, text, 0o600)).expect_err("not a secret");
            assert!(matches!(error, SecretFileError::NotASecret), "{error}");
            assert!(!error.to_string().contains(text), "{error}");
        }
        let error = read(directory.path()).expect_err("a directory");
        assert!(matches!(error, SecretFileError::NotAFile), "{error}");
        let error = read(&directory.path().join("missing")).expect_err("no file");
        assert!(matches!(error, SecretFileError::Read(_)), "{error}");
    }
}
