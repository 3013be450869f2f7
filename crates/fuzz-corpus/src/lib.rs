//! The committed seeds of the fuzz targets, for plain tests.
//!
//! Each crate with a fuzz target runs the target's body on every seed in a test, so that an input that
//! once broke a target is tested for ever, and writes the seeds in an ignored test. This crate is a
//! development dependency only.
//!
//! The folder is found when a test runs, not when it is compiled: a build folder may have been copied
//! from another checkout.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Where the seeds of all targets are in a checkout.
const CORPORA: &str = "fuzz/corpus";

/// The seeds of one fuzz target, in `fuzz/corpus`.
#[derive(Clone, Debug)]
pub struct Corpus {
    folder: PathBuf,
}

impl Corpus {
    /// The seeds of the fuzz target `target`, in the checkout that has the working directory. Cargo runs
    /// tests in the folder of their package.
    ///
    /// # Panics
    /// If the working directory is in no checkout.
    pub fn of(target: &str) -> Self {
        let current = env::current_dir();
        let current = current.unwrap_or_else(|error| panic!("no working directory: {error}"));
        Self::above(&current, target)
    }

    /// The seeds of `target` in the checkout that has the folder `inside`.
    fn above(inside: &Path, target: &str) -> Self {
        let corpora =
            inside.ancestors().map(|folder| folder.join(CORPORA)).find(|all| all.is_dir());
        let corpora = corpora.unwrap_or_else(|| {
            panic!("no folder {CORPORA} above {}: run tests in a checkout", inside.display())
        });
        Self { folder: corpora.join(target) }
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

    /// The bytes of one seed, for tests that a seed still reaches what it is for.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn seed(&self, name: &str) -> Vec<u8> {
        let path = self.folder.join(name);
        fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
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
    fn seeds_are_those_of_the_checkout_in_which_a_test_runs() {
        let other = env::temp_dir().join(format!("fuzz-corpus-{}", std::process::id()));
        let package = other.join("crates/some");
        for folder in [&package, &other.join(CORPORA)] {
            fs::create_dir_all(folder).expect("a folder");
        }
        Corpus::above(&package, "shm").write("a-seed", "bytes");
        let written = Corpus::above(&other, "shm").seed("a-seed");
        let is_there = other.join("fuzz/corpus/shm/a-seed").is_file();
        fs::remove_dir_all(&other).expect("the folder is there");
        assert_eq!((&*written, is_there), (&b"bytes"[..], true));
    }

    #[test]
    #[should_panic(expected = "no folder fuzz/corpus above /proc")]
    fn outside_a_checkout_there_are_none() {
        Corpus::above(Path::new("/proc"), "shm");
    }

    #[test]
    #[should_panic(expected = "cannot read")]
    fn a_target_without_a_corpus_fails() {
        Corpus::of("no-such-target").run(|_| ());
    }
}
