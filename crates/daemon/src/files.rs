//! Files that are complete or absent, even if a process is killed while it writes them, and secrets
//! that only their owner can read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gossamer_job::Secret;

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
