//! Files that are complete or absent, even if a process is killed while it writes them, and secrets
//! that only their owner can read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gossamer_job::Secret;
use rustix::fs::OFlags;

/// Makes a directory that only its owner can read, and its parents.
pub(crate) fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A file beside `path` with a unique name, to be renamed when it is complete.
pub(crate) fn temporary(path: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:032x}.part", random_number()?));
    let temporary = path.with_file_name(name);
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    Ok((file, temporary))
}

/// Gives a temporary file its name, so that it survives a crash.
pub(crate) fn settle(file: &File, temporary: &Path, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    fs::rename(temporary, path)?;
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

/// Writes a file that is complete or absent at any time.
pub(crate) fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let (mut file, temporary) = temporary(path, mode)?;
    let written = file.write_all(content).and_then(|()| settle(&file, &temporary, path));
    if written.is_err() {
        // The first error is reported.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Reads the file at `path` if it is a regular one of at most `largest` bytes. A job runs as the daemon's
/// user and can put anything there: opening a pipe would block for ever, and a device may have no end.
/// `flags` may be `NOFOLLOW`.
///
/// # Errors
/// That of the system, or the file is not a regular one, or too large.
pub(crate) fn read_regular(path: &Path, largest: u64, flags: OFlags) -> io::Result<Vec<u8>> {
    // A pipe that is opened for reading this way does not wait for a writer.
    let flags = (flags | OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut content = Vec::new();
    // One byte beyond the limit shows that the file is too large.
    file.take(largest + 1).read_to_end(&mut content)?;
    if content.len() as u64 > largest {
        return Err(io::Error::other(format!("the file is larger than {largest} bytes")));
    }
    Ok(content)
}

/// Fails if users other than the owner of a file can read it.
pub(crate) fn only_for_owner(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let text = format!("mode {:o} lets other users read this key: chmod 600 it", mode & 0o777);
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// A random secret.
pub(crate) fn random_secret() -> io::Result<Secret> {
    let mut bytes = [0; 32];
    for half in bytes.chunks_mut(16) {
        half.copy_from_slice(&random_number()?.to_ne_bytes());
    }
    Ok(Secret::new(bytes))
}

/// A random number.
pub(crate) fn random_number() -> io::Result<u128> {
    let mut bytes = [0; 16];
    let read = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    debug_assert_eq!(read, bytes.len(), "up to 256 bytes come whole");
    Ok(u128::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        write(&path, b"secret", 0o600).unwrap();
        only_for_owner(&path).unwrap();
        write(&path, b"no secret", 0o644).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"no secret");
        assert!(only_for_owner(&path).unwrap_err().to_string().contains("chmod 600"));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
    }
}
