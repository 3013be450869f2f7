//! The committed seeds of the fuzz targets, for plain tests.
//!
//! Each crate with a fuzz target runs the target's body on every seed in a test, so that an input that
//! once broke a target is tested for ever, and writes the seeds in an ignored test. This crate is a
//! development dependency only.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

/// The seeds of one fuzz target, in `fuzz/corpus`.
#[derive(Clone, Debug)]
pub struct Corpus {
    folder: PathBuf,
}

impl Corpus {
    /// The seeds of the fuzz target `target`.
    pub fn of(target: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        Self { folder }
    }

    /// Runs `body` on every seed and prints the path of each before its run.
    ///
    /// # Panics
    /// If a seed cannot be read, if there is none, and if `body` panics.
    pub fn run(&self, body: impl Fn(&[u8])) {
        let folder = self.folder.display();
        let entries = fs::read_dir(&self.folder);
        let entries = entries.unwrap_or_else(|error| panic!("cannot read {folder}: {error}"));
        let mut count = 0;
        for entry in entries {
            let path = entry.unwrap_or_else(|error| panic!("cannot read {folder}: {error}")).path();
            println!("{}", path.display());
            let seed = fs::read(&path);
            body(&seed.unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display())));
            count += 1;
        }
        assert!(count > 0, "no seeds in {folder}");
    }

    /// Writes a seed, replacing one of the same name.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.folder.join(name);
        let written =
            fs::create_dir_all(&self.folder).and_then(|()| fs::write(&path, bytes.as_ref()));
        if let Err(error) = written {
            panic!("cannot write {}: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn every_seed_runs() {
        let count = Cell::new(0);
        let corpus = Corpus::of("memcached");
        corpus.run(|_| count.set(count.get() + 1));
        assert_eq!(count.get(), fs::read_dir(&corpus.folder).expect("the folder").count());
    }

    #[test]
    #[should_panic(expected = "cannot read")]
    fn a_target_without_a_corpus_fails() {
        Corpus::of("no-such-target").run(|_| ());
    }
}
