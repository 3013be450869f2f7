//! The Local Functions of jams in C: each source compiled once more, for the program that includes the
//! package, and an archive of the objects, which the module of the package links.
//!
//! The program finds an entry and slots of imports by names that begin with [`prefix`]; every other name
//! of a source stays its object's own, so that two jams may both have a function `sum`. An import is a
//! few instructions that jump to the address in its slot (`jam.h`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jam_format::Digest;

use crate::compile::{Compilers, File, run};
use crate::error::Error;

/// A jam in C.
pub(crate) struct CSource<'a> {
    pub(crate) name: &'a str,
    /// The absolute path.
    pub(crate) path: &'a Path,
    /// That of its Injected Function.
    pub(crate) blob: &'a [u8],
}

/// The names of a Local Function for the linker begin so. They have the digest of the jam's code, so that
/// jams of two packages have the same names only if they are the same jam.
pub(crate) fn prefix(blob: &[u8]) -> String {
    format!("__jam_{}", Digest::of(blob))
}

impl Compilers {
    /// Compiles the Local Functions of `jams`, which are in `folder`, and writes an archive of them to
    /// `out`. The result is the name of the library, if there are any.
    pub(crate) fn c_locals(
        &self,
        package: &str,
        jams: &[CSource<'_>],
        folder: &Path,
        out: &Path,
    ) -> Result<Option<String>, Error> {
        if jams.is_empty() {
            return Ok(None);
        }
        let blobs: Vec<u8> = jams.iter().flat_map(|jam| jam.blob).copied().collect();
        let library = format!("jams_{package}_{}", Digest::of(&blobs));
        let archive = out.join(format!("lib{library}.a"));
        if archive.exists() {
            // A member that is no longer compiled would stay.
            fs::remove_file(&archive).map_err(Error::io("remove", &archive))?;
        }
        let mut objects = Vec::new();
        for jam in jams {
            let shown = folder.join(jam.path.file_name().unwrap_or_default());
            objects.push(self.c_local(jam, &shown.to_string_lossy())?);
        }
        let mut ar = self.binutil("ar", package)?;
        ar.arg("crsD").arg(&archive).args(&objects);
        run(ar, package)?;
        Ok(Some(library))
    }

    /// The object of one.
    fn c_local(&self, jam: &CSource<'_>, shown: &str) -> Result<PathBuf, Error> {
        let (prefix, name) = (prefix(jam.blob), format!("{}.local", jam.name));
        let file = File { path: jam.path, name: &name, shown };
        let define = format!("-DJAM_LOCAL=\"{prefix}\"");
        // A panic of what it calls unwinds through it.
        self.c(file, &[&define, "-fexceptions", "-fasynchronous-unwind-tables"])?;
        let object = self.c_object(file);
        let mut objcopy = self.binutil("objcopy", shown)?;
        objcopy.arg("--wildcard").arg(format!("--keep-global-symbol={prefix}*")).arg(&object);
        run(objcopy, shown)?;
        Ok(object)
    }

    /// The program of this name that belongs to the C compiler.
    fn binutil(&self, name: &str, shown: &str) -> Result<Command, Error> {
        let mut ask = self.c_compiler(shown)?;
        ask.arg(format!("-print-prog-name={name}"));
        Ok(Command::new(run(ask, shown)?.trim()))
    }
}
