//! What can be wrong with a jam, said as a compiler says it: with symbol, file and line.

use std::fmt;
use std::path::PathBuf;

use jam_format::{BlobError, MAX_BLOB_BYTES, Machine, PackageError};
use thiserror::Error;

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The file, as its author names it.
    pub file: String,
    /// The line, from 1; 0 if it is unknown.
    pub line: u32,
    /// The column, from 1; 0 if it is unknown.
    pub column: u32,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        for number in [self.line, self.column].into_iter().take_while(|number| *number > 0) {
            write!(f, ":{number}")?;
        }
        Ok(())
    }
}

/// Why a jam or a package could not be built.
///
/// Its debug form is its message with the causes, which is what cargo shows of a build script whose
/// `main` returns it.
#[derive(Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written, or a program not be started.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What could not be done.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// An environment variable of build scripts is missing.
    #[error("no environment variable {name}: call this in a build script")]
    NoVariable {
        /// Its name.
        name: &'static str,
    },
    /// Jams cannot be built for the target.
    #[error("cannot build jams for {target}: expected x86_64 or aarch64 on Linux")]
    Target {
        /// The target.
        target: String,
    },
    /// The folder has no sources.
    #[error(
        "no jams in {}: expected files NAME.rs or NAME.c, or folders NAME with a Cargo.toml or NAME.c",
        folder.display()
    )]
    NoJams {
        /// The folder.
        folder: PathBuf,
    },
    /// Two sources make one name.
    #[error("two jams or rieds with the name `{name}`: expected one file or folder for each")]
    SameName {
        /// The name, with `_` for each `-` as in Rust.
        name: String,
    },
    /// A source has a name that generated Rust cannot have.
    #[error("invalid name {name:?} of {}: expected {expected}", path.display())]
    Name {
        /// The name.
        name: String,
        /// Of which file or folder.
        path: PathBuf,
        /// What was expected.
        expected: &'static str,
    },
    /// The source is not what a jam must be, which is seen before it is compiled.
    #[error("{site}: {message}")]
    Source {
        /// Where.
        site: Site,
        /// What is wrong, and what was expected.
        message: String,
    },
    /// The compiler of Rust has no library for the target.
    #[error("no library of Rust for {target}: install it with `rustup target add {target}`")]
    NoLibrary {
        /// The target.
        target: String,
    },
    /// No program that compiles or links C for the machine.
    #[error(
        "no C compiler for {machine}, which {file} needs: expected {expected}; on Debian, install it \
         with `apt install {}`",
        cross_packages(*machine)
    )]
    NoCompiler {
        /// The machine.
        machine: Machine,
        /// What is built.
        file: String,
        /// The programs that were looked for, and settings that name another one.
        expected: String,
    },
    /// No program that disassembles code of the machine.
    #[error(
        "no disassembler for {machine}: expected one of {expected} that knows it; on Debian, install \
         one with `apt install binutils-multiarch` or `apt install llvm`"
    )]
    NoDisassembler {
        /// The machine.
        machine: Machine,
        /// The programs that were looked for.
        expected: String,
    },
    /// Several builders that build one package are for one machine.
    #[error("{machine} twice: expected a machine once in a build")]
    SameMachine {
        /// The machine.
        machine: Machine,
    },
    /// A jam or ried has other types, or other functions, on one machine than on another.
    #[error(
        "`{name}` has other types on {machine} than on {other}: expected the same on every machine \
         of a package"
    )]
    Differs {
        /// The jam or ried.
        name: String,
        /// A machine.
        machine: Machine,
        /// Another one.
        other: Machine,
    },
    /// The compiler rejects the source.
    #[error("cannot compile {file}:\n{output}")]
    Compile {
        /// The source.
        file: String,
        /// What the compiler said.
        output: String,
    },
    /// What the compiler made cannot be read.
    #[error("cannot read the object of {file}")]
    Object {
        /// The source.
        file: String,
        /// Why.
        #[source]
        source: object::Error,
    },
    /// What the compiler made has no entry, or has a record that is malformed.
    #[error("{file}: {message}")]
    Records {
        /// The source.
        file: String,
        /// What is missing.
        message: String,
    },
    /// A static can change, so it would have to be at the receiver's.
    #[error(
        "{site}: mutable static `{symbol}`: a jam has no memory of its own that can change; import \
         a function of the receiver that owns it"
    )]
    MutableStatic {
        /// The static.
        symbol: String,
        /// Where it is declared, or used.
        site: Site,
    },
    /// A thread-local value.
    #[error(
        "{site}: thread-local `{symbol}`: a jam has no memory of its own that can change; import a \
         function of the receiver that owns it"
    )]
    ThreadLocal {
        /// The value.
        symbol: String,
        /// Where it is declared, or used.
        site: Site,
    },
    /// A function or static that nothing defines and nothing imports.
    #[error(
        "{site}: undeclared import `{symbol}`: declare it with jam::import! (in C: JAM_IMPORT)"
    )]
    Undeclared {
        /// The symbol.
        symbol: String,
        /// Where it is used.
        site: Site,
    },
    /// Code that is not position-independent.
    #[error(
        "{site}: `{symbol}` at an absolute address ({relocation}): a jam must be \
         position-independent; remove assembly or flags that prevent it"
    )]
    Absolute {
        /// The symbol whose address it is.
        symbol: String,
        /// The kind of relocation.
        relocation: String,
        /// Where it is used.
        site: Site,
    },
    /// A relocation that the linker does not know, or that does not reach.
    #[error("{site}: relocation {relocation} of `{symbol}`: {why}")]
    Relocation {
        /// The symbol that it is of.
        symbol: String,
        /// The kind of relocation.
        relocation: String,
        /// What was expected.
        why: &'static str,
        /// Where it is used.
        site: Site,
    },
    /// The jam is longer than a blob may be.
    #[error(
        "{site}: jam of {bytes} bytes, expected at most {MAX_BLOB_BYTES}; its largest part is \
         `{symbol}` with {symbol_bytes}"
    )]
    TooLong {
        /// Its length in bytes, text and data.
        bytes: u64,
        /// The largest function or static of it.
        symbol: String,
        /// The length of that in bytes.
        symbol_bytes: u64,
        /// Where that is.
        site: Site,
    },
    /// The blob is not one.
    #[error("{file}: cannot make a blob of {text} bytes of text and {data} of data")]
    Blob {
        /// The source.
        file: String,
        /// The length of its code in bytes.
        text: usize,
        /// The length of its data in bytes.
        data: usize,
        /// Why.
        #[source]
        source: BlobError,
    },
    /// The crate of a ried is not what a ried must be.
    #[error("ried `{ried}`: {message}")]
    Ried {
        /// The ried.
        ried: String,
        /// What is wrong, and what was expected.
        message: String,
    },
    /// The package cannot be written.
    #[error("cannot make package {name}")]
    Package {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: PackageError,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// Debian's packages with a C compiler for a machine.
fn cross_packages(machine: Machine) -> &'static str {
    match machine {
        _ if Machine::CURRENT == Some(machine) => "gcc",
        Machine::X86_64 => "gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
        Machine::Aarch64 => "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    }
}

impl Error {
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}
