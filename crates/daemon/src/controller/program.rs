//! The file of a program: where it is, and its digest.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, io};

use daemon_protocol::Program;

/// The file of a program: a path if it has a slash, else looked for in `PATH`.
pub(crate) fn find(program: &str) -> io::Result<PathBuf> {
    let is_program = |path: &Path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let path = PathBuf::from(program);
    if program.contains('/') {
        let text = "not an executable file";
        path.metadata()?;
        return if is_program(&path) { Ok(path) } else { Err(io::Error::other(text)) };
    }
    let paths = env::var_os("PATH").unwrap_or_default();
    let mut found = env::split_paths::<OsStr>(&paths).map(|folder| folder.join(&path));
    let missing = || {
        let text = format!("not in PATH: for a file in this directory use ./{program}");
        io::Error::new(io::ErrorKind::NotFound, text)
    };
    found.find(|path| is_program(path)).ok_or_else(missing)
}

pub(crate) fn digest(file: &Path, name: String) -> io::Result<Program> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::open(file)?)?;
    Ok(Program { digest: *hasher.finalize().as_bytes(), bytes: hasher.count(), name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(find("sh").unwrap().ends_with("sh"));
        assert_eq!(find("/bin/sh").unwrap(), Path::new("/bin/sh"));
        assert!(find("no-such-program").unwrap_err().to_string().contains("./no-such-program"));
        assert!(find("/etc/hostname/x").is_err());
        assert!(find("/etc/passwd").unwrap_err().to_string().contains("not an executable"));
    }
}
