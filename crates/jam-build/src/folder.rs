//! What is in the folder of a package: sources of jams, and rieds, each with a name that generated Rust
//! can have.

use std::fs;
use std::path::{Path, PathBuf};

use crate::c_ried::is_c_ried;
use crate::compile::is_hidden;
use crate::error::Error;
use crate::generate::{constant, module_name};
use crate::ried::is_ried;

/// Constants that modules of jams and rieds have, besides the one that is named after the element.
const GENERATED: &[&str] = &["ELEMENT", "ID", "NAME"];

/// The paths of the jams and rieds in `folder`, in the order of their names. Messages name it as `shown`
/// does.
pub(crate) fn elements_in(folder: &Path, shown: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("read", shown))? {
        let path = entry.map_err(Error::io("read", shown))?.path();
        if !is_hidden(&path) && (is_jam(&path) || is_ried(&path) || is_c_ried(&path)) {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(Error::NoJams { folder: shown.to_owned() });
    }
    paths.sort_by_key(|path| name_of(path));
    for path in &paths {
        check_name(path, shown)?;
    }
    let mut modules: Vec<_> = paths.iter().map(|path| module_name(&name_of(path))).collect();
    modules.sort();
    match modules.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::SameName { name: pair[0].clone() }),
        None => Ok(paths),
    }
}

fn is_jam(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs" || extension == "c")
}

/// That of a jam is its file's, without the extension; that of a ried its folder's.
fn name_of(path: &Path) -> String {
    let name = if is_jam(path) { path.file_stem() } else { path.file_name() };
    name.unwrap_or_default().to_string_lossy().into_owned()
}

/// Checks that a program can include the module of an element: a jam has the name of a function, a ried
/// that of a crate, and generated items have others.
fn check_name(path: &Path, shown: &Path) -> Result<(), Error> {
    let name = name_of(path);
    let expected = if GENERATED.contains(&&constant(&name)[..]) {
        "another one, since modules of jams and rieds have a constant of this name"
    } else if is_jam(path) && !is_identifier(&name) {
        "the name of a function: letters, digits and underscores, not first a digit, and no keyword"
    } else if !is_identifier(&module_name(&name)) {
        "letters, digits, hyphens and underscores, not first a digit, and no keyword"
    } else {
        return Ok(());
    };
    let path = shown.join(path.file_name().unwrap_or_default());
    Err(Error::Name { name, path, expected })
}

/// Whether Rust has it as a name that is not written with `r#`.
fn is_identifier(name: &str) -> bool {
    !name.starts_with("r#") && syn::parse_str::<syn::Ident>(name).is_ok()
}
