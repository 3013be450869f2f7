//! From a folder of sources to a package.

use std::ffi::OsString;
use std::fs;
use std::iter;
use std::mem;
use std::path::{self, Path, PathBuf};

use jam_format::{
    ElementKind, Features, FunctionKind, Machine, NewElement, NewFunction, Package, Parsed,
    UnknownFeature, encode_typed_package,
};

use crate::c_local::CSource;
use crate::c_ried::is_c_ried;
use crate::compile::{self, Compilers, File};
use crate::error::Error;
use crate::folder::elements_in;
use crate::generate::{self, Generated, GeneratedRied};
use crate::link::{self, Request};
use crate::objects::Objects;
use crate::records::{self, Entry, Imported};
use crate::ried::{BuiltRied, is_ried};
use crate::source::{Shape, Source};

/// Builds the jams and rieds of a folder, with the compilers and for the target that it is told. For
/// several machines there is one for each:
///
/// ```no_run
/// use jam_build::Builder;
///
/// let arm = Builder::new("aarch64-unknown-linux-gnu", "work/arm")?.cc("clang");
/// let package = Builder::new("x86_64-unknown-linux-gnu", "work/x86")?.and(arm).build("jams")?;
/// # Ok::<(), jam_build::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    compilers: Compilers,
    features: Features,
    /// Those for other machines, each without others.
    others: Vec<Self>,
}

/// A jam that has been built.
#[derive(Clone, Debug)]
pub struct BuiltJam {
    /// Its name.
    pub name: String,
    /// The machine that it is for.
    pub machine: Machine,
    /// Its blob.
    pub blob: Vec<u8>,
    /// The absolute path of its source.
    pub path: PathBuf,
    /// The files that the compiler has read for it.
    pub sources: Vec<PathBuf>,
    shape: Shape,
    /// Those of its entry, as text.
    types: String,
    imports: Vec<Imported>,
}

/// A blob, with the types of its entry and its imports.
type Linked = (Vec<u8>, Shape, Vec<Imported>);

/// A package that has been built.
#[derive(Clone, Debug)]
pub struct BuiltPackage {
    /// Its name: that of the folder.
    pub name: String,
    /// The package as a file.
    pub bytes: Vec<u8>,
    /// Its jams for every machine, in the order of their ids and machines.
    pub jams: Vec<BuiltJam>,
    /// Its rieds for every machine, in the order of their ids and machines.
    pub rieds: Vec<BuiltRied>,
}

impl Builder {
    /// For a target of rustc, with a folder for what compilers make, which may be kept.
    ///
    /// # Errors
    /// [`Error::Target`], if jams cannot be built for it; [`Error::Io`], if there is no current folder that
    /// a relative `work` could be in.
    pub fn new(target: &str, work: impl Into<PathBuf>) -> Result<Self, Error> {
        let unknown = || Error::Target { target: target.to_owned() };
        let (name, rest) = target.split_once('-').ok_or_else(unknown)?;
        let machine = Machine::ALL.into_iter().find(|machine| machine.name() == name);
        let machine = machine.filter(|_| rest.contains("linux")).ok_or_else(unknown)?;
        // Cargo runs in the folder of each ried.
        let work = work.into();
        let work = path::absolute(&work).map_err(Error::io("find", work))?;
        let compilers = Compilers {
            rustc: OsString::from("rustc"),
            cc: Vec::new(),
            target: target.to_owned(),
            machine,
            opt_level: "2".to_owned(),
            features: Vec::new(),
            work,
        };
        Ok(Self { compilers, features: Features::NONE, others: Vec::new() })
    }

    /// For the machine of `other` as well, with its compilers and features: a package that `build`
    /// makes then has every jam and ried for each machine, of which receivers take their own. The
    /// machines must differ. What is set afterwards is for this builder's own machine.
    pub fn and(mut self, mut other: Self) -> Self {
        let others = mem::take(&mut other.others);
        self.others.push(other);
        self.others.extend(others);
        self
    }

    /// Makes the library of those of `jams` that are in C: [`Compilers::c_locals`].
    pub(crate) fn c_locals(
        &self,
        package: &BuiltPackage,
        folder: &Path,
        out: &Path,
    ) -> Result<Option<String>, Error> {
        let in_c = package.jams.iter().filter(|jam| jam.is_c());
        let sources = in_c.map(|BuiltJam { name, path, blob, .. }| CSource { name, path, blob });
        self.compilers.c_locals(&package.name, &sources.collect::<Vec<_>>(), folder, out)
    }

    /// With this compiler of Rust instead of `rustc`.
    pub fn rustc(mut self, rustc: impl Into<OsString>) -> Self {
        self.compilers.rustc = rustc.into();
        self
    }

    /// With this compiler of C instead of the target's gcc, or clang where there is no gcc: a program, and
    /// after spaces arguments that it always gets, as in `ccache gcc`. Nothing is the default.
    pub fn cc(mut self, cc: impl Into<OsString>) -> Self {
        self.compilers.cc = compile::words(cc.into());
        self
    }

    /// With this optimisation instead of 2: `0` to `3`, `s` or `z`.
    pub fn opt_level(mut self, level: impl Into<String>) -> Self {
        self.compilers.opt_level = level.into();
        self
    }

    /// For processors with these features, by rustc's names. A receiver without them rejects the jams.
    /// Jams in C do not use aarch64's `rcpc2` and `lse2`, for which C compilers have no flag. Rieds use
    /// none of the features, since a receiver would not compare them.
    ///
    /// # Errors
    /// [`UnknownFeature`], if a receiver could not compare one of them.
    pub fn features(mut self, names: &[&str]) -> Result<Self, UnknownFeature> {
        self.features = Features::from_names(self.compilers.machine, names.iter().copied())?;
        self.compilers.features = names.iter().map(|name| (*name).to_owned()).collect();
        Ok(self)
    }

    /// Builds every jam and ried in `folder`, for each machine.
    ///
    /// # Errors
    /// [`Error`]: the first that is found, in the order of machines, as they were given, and names.
    pub fn build(&self, folder: impl AsRef<Path>) -> Result<BuiltPackage, Error> {
        let folder = folder.as_ref();
        let absolute = folder.canonicalize().map_err(Error::io("find", folder))?;
        let name = absolute.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let paths = elements_in(&absolute, folder)?;
        let machines: Vec<_> = self.builders().map(|builder| builder.compilers.machine).collect();
        if let Some(at) = (1..machines.len()).find(|at| machines[..*at].contains(&machines[*at])) {
            return Err(Error::SameMachine { machine: machines[at] });
        }
        let (mut jams, mut rieds) = (Vec::new(), Vec::new());
        for builder in self.builders() {
            builder.all(folder, &paths, &mut jams, &mut rieds)?;
        }
        jams.sort_by(|a, b| (&a.name, a.machine).cmp(&(&b.name, b.machine)));
        rieds.sort_by(|a, b| (&a.name, a.machine).cmp(&(&b.name, b.machine)));
        same_types(&jams, &rieds)?;
        let of_jams = jams.iter().map(|BuiltJam { machine, name, blob, .. }| NewElement {
            kind: ElementKind::Jam,
            machine: *machine,
            name,
            bytes: blob,
        });
        let of_rieds = rieds.iter().map(|BuiltRied { machine, name, library, .. }| NewElement {
            kind: ElementKind::Ried,
            machine: *machine,
            name,
            bytes: library,
        });
        let elements: Vec<_> = of_jams.chain(of_rieds).collect();
        let bytes = encode_typed_package(&name, &elements, &functions_of(&jams, &rieds));
        let bytes = bytes.map_err(|source| Error::Package { name: name.clone(), source })?;
        Ok(BuiltPackage { name, bytes, jams, rieds })
    }

    /// One for each machine.
    fn builders(&self) -> impl Iterator<Item = &Self> {
        iter::once(self).chain(&self.others)
    }

    /// Builds all sources for its own machine.
    fn all(
        &self,
        folder: &Path,
        paths: &[PathBuf],
        jams: &mut Vec<BuiltJam>,
        rieds: &mut Vec<BuiltRied>,
    ) -> Result<(), Error> {
        let mut abi = None;
        for path in paths {
            let shown = folder.join(path.file_name().unwrap_or_default());
            if is_ried(path) {
                rieds.push(self.compilers.ried(path, &shown)?);
            } else if is_c_ried(path) {
                rieds.push(self.compilers.c_ried(path, &shown)?);
            } else {
                jams.push(self.one(path, &shown.to_string_lossy(), &mut abi)?);
            }
        }
        Ok(())
    }

    /// Builds one source, in Rust or C by its extension, for this builder's own machine. Messages and panics name it as `path` does.
    ///
    /// # Errors
    /// [`Error`], which says what is wrong with it.
    pub fn build_jam(&self, path: impl AsRef<Path>) -> Result<BuiltJam, Error> {
        let path = path.as_ref();
        let absolute = path.canonicalize().map_err(Error::io("find", path))?;
        self.one(&absolute, &path.to_string_lossy(), &mut None)
    }

    /// Builds one source. `abi` is the library that jams in Rust need, once it is built.
    fn one(&self, path: &Path, shown: &str, abi: &mut Option<PathBuf>) -> Result<BuiltJam, Error> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let file = File { path, name: &name, shown };
        let is_c = path.extension().is_some_and(|extension| extension == "c");
        let (blob, shape, imports) = if is_c { self.c(file)? } else { self.rust(file, abi)? };
        let sources = self.compilers.sources(file)?;
        let (name, machine) = (name.into_owned(), self.compilers.machine);
        let (path, types) = (path.to_owned(), shape.types());
        Ok(BuiltJam { name, machine, blob, path, sources, shape, types, imports })
    }

    fn rust(&self, file: File<'_>, abi: &mut Option<PathBuf>) -> Result<Linked, Error> {
        let text = fs::read_to_string(file.path).map_err(Error::io("read", file.path))?;
        let source = Source::read(&text, file.name, file.shown)?;
        let library = match abi {
            Some(library) => library.clone(),
            None => abi.insert(self.compilers.abi()?).clone(),
        };
        // A call with a payload is a run of its own, so that the shorter code counts.
        let is_apart = source.shape.element.is_some();
        let build = |is_apart| {
            let entry = generate::injected(file.name, file.path, &source.shape, is_apart);
            let (bytes, prefix) = self.compilers.rust(file, &entry, &library)?;
            let objects = Objects::parse(file.shown, &bytes, &prefix)?;
            let (entry, imports) = records::of_rust(&objects, &source.imports)?;
            let blob = self.link(&objects, file, &entry, &imports, &|name| source.line_of(name))?;
            Ok((blob, imports))
        };
        let (blob, imports) = match build(is_apart) {
            // In the form that is apart the same error has its line.
            Err(error) if !is_apart && !matches!(error, Error::Compile { .. }) => build(true)?,
            built => built?,
        };
        Ok((blob, source.shape, imports))
    }

    fn c(&self, file: File<'_>) -> Result<Linked, Error> {
        let bytes = self.compilers.c(file, &[])?;
        let objects = Objects::parse(file.shown, &bytes, "")?;
        let (entry, imports, shape) = records::of_c(&objects)?;
        let blob = self.link(&objects, file, &entry, &imports, &|_| None)?;
        Ok((blob, shape, imports))
    }

    fn link(
        &self,
        objects: &Objects<'_>,
        file: File<'_>,
        entry: &Entry,
        imports: &[Imported],
        line_of: &dyn Fn(&str) -> Option<(u32, u32)>,
    ) -> Result<Vec<u8>, Error> {
        let machine = self.compilers.machine;
        let request =
            Request { name: file.name, machine, features: self.features, entry, imports, line_of };
        link::link(objects, &request)
    }
}

/// The functions of a package, whose types it has as text.
fn functions_of<'a>(jams: &'a [BuiltJam], rieds: &'a [BuiltRied]) -> Vec<NewFunction<'a>> {
    let mut functions = Vec::new();
    for BuiltJam { name: element, types, imports, .. } in jams {
        let kind = FunctionKind::Entry;
        functions.push(NewFunction { element, kind, name: element, types });
        let imports = imports.iter().map(|import| (&import.name, &import.types));
        let kind = FunctionKind::Import;
        functions.extend(imports.map(|(name, types)| NewFunction { element, kind, name, types }));
    }
    for BuiltRied { name: element, interface, .. } in rieds {
        for (kind, of) in
            [(FunctionKind::Export, &interface.exports), (FunctionKind::Import, &interface.imports)]
        {
            let of = of.iter().map(|function| (&function.name, &function.types));
            functions.extend(of.map(|(name, types)| NewFunction { element, kind, name, types }));
        }
    }
    functions
}

/// Checks that jams and rieds have the same types on every machine, as callers know one of each name.
fn same_types(jams: &[BuiltJam], rieds: &[BuiltRied]) -> Result<(), Error> {
    let differs =
        |name: &str, machine, other| Error::Differs { name: name.to_owned(), machine, other };
    for (a, b) in jams.iter().zip(jams.iter().skip(1)).filter(|(a, b)| a.name == b.name) {
        let (first, second) = (a.parsed(), b.parsed());
        if (first.entry_signature(), first.property())
            != (second.entry_signature(), second.property())
        {
            return Err(differs(&b.name, b.machine, a.machine));
        }
    }
    for (a, b) in rieds.iter().zip(rieds.iter().skip(1)).filter(|(a, b)| a.name == b.name) {
        if a.interface.exports != b.interface.exports {
            return Err(differs(&b.name, b.machine, a.machine));
        }
    }
    Ok(())
}

impl BuiltPackage {
    /// The Rust module of the package, for a program that finds the package's file at `file`. Its jams
    /// in C have no Local Functions, which only [`package`](crate::package()) makes.
    pub fn module(&self, file: &Path) -> String {
        self.module_with(file, None)
    }

    /// The same, with the Local Functions of jams in C if there is a library of them.
    pub(crate) fn module_with(&self, file: &Path, library: Option<&str>) -> String {
        let package = Package::parse(&self.bytes).expect("what was encoded is a package");
        let id = |name: &str| {
            let element = package.elements().iter().find(|element| element.name == name);
            element.expect("it was encoded").id
        };
        // One of each, whatever the machines.
        let mut jams: Vec<_> = self.jams.iter().map(|jam| jam.generated(id(&jam.name))).collect();
        jams.dedup_by_key(|jam| jam.id);
        let rieds = self.rieds.iter().map(|ried| GeneratedRied {
            id: id(&ried.name),
            name: &ried.name,
            exports: &ried.interface.exports,
        });
        let mut rieds: Vec<_> = rieds.collect();
        rieds.dedup_by_key(|ried| ried.id);
        generate::package(&self.name, file, library, &jams, &rieds)
    }
}

impl BuiltJam {
    fn parsed(&self) -> Parsed<'_> {
        Parsed::parse(&self.blob).expect("what was linked is a blob")
    }

    fn is_c(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "c")
    }

    fn generated(&self, id: u16) -> Generated<'_> {
        let parsed = self.parsed();
        Generated {
            id,
            name: &self.name,
            signature: parsed.entry_signature(),
            property: parsed.property().unwrap_or_default(),
            path: (!self.is_c()).then_some(&self.path),
            shape: &self.shape,
            imports: &self.imports,
            blob: &self.blob,
        }
    }
}
