//! [`ResultsFile`]: the file that a benchmark writes a plot or other results to.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// A results file, opened before the run: a long run must not fail at the end because its results
/// cannot be written.
#[derive(Debug)]
pub struct ResultsFile {
    path: PathBuf,
    file: File,
}

impl ResultsFile {
    /// Opens the file without truncating it: its contents stay until there are results.
    ///
    /// # Errors
    /// In words, if it cannot be written.
    pub fn open(path: PathBuf) -> Result<Self, String> {
        match OpenOptions::new().write(true).create(true).truncate(false).open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(format!("cannot write {}: {error}", path.display())),
        }
    }

    /// Replaces its contents.
    ///
    /// # Errors
    /// In words, if it cannot be written.
    pub fn write(mut self, text: &str) -> Result<(), String> {
        // Only regular files can be truncated, not devices or pipes.
        let is_regular = self.file.metadata().is_ok_and(|data| data.is_file());
        let truncated = if is_regular { self.file.set_len(0) } else { Ok(()) };
        truncated
            .and_then(|()| self.file.write_all(text.as_bytes()))
            .map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_keeps_its_contents_until_there_are_results() {
        let path = std::env::temp_dir().join(format!("results-{}", std::process::id()));
        fs::write(&path, "results of an earlier run").unwrap();
        let file = ResultsFile::open(path.clone()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "results of an earlier run");
        file.write("results").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "results");
        fs::remove_file(&path).unwrap();
        let error = ResultsFile::open("/no/such/plot.svg".into()).unwrap_err();
        assert!(error.starts_with("cannot write /no/such/plot.svg: "), "{error}");
    }
}
