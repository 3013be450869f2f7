//! The folders of a crate are layers, too: a lower one never names an upper one.
//!
//! The order is [`FOLDERS`]. A module names another by a path from the root of the crate
//! (`use crate::x::Y`, `crate::x::f()`) or by one that starts with `super`; a name that the root
//! re-exports counts as a name of the module that has it. Test code may name everything.
//!
//! It is an error if a folder of the table does not exist, if a module is missing in it, and if nothing
//! was checked.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

use crate::layers::names::{Name, is_test_file, names, test_modules};
use crate::layers::order::FOLDERS;
use crate::workspace::{Source, Workspace};

/// The place of a module in the path of one: its names from the root of the crate.
type ModulePath = Vec<String>;

/// `user` names `used`, both modules of the folder that is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Use {
    user: String,
    used: String,
    /// `file:line: names crate::a::B`
    shown: String,
}

/// The modules of a folder and their uses.
#[derive(Debug, Default)]
struct Folder {
    modules: BTreeSet<String>,
    uses: Vec<Use>,
    /// Uses of everything that the root has, which hide what is used.
    globs: Vec<String>,
    /// Paths that were read, those inside one module among them.
    paths: usize,
}

/// Adds violations of the order of a folder to `broken`; returns what was checked.
pub(super) fn check(workspace: &Workspace, broken: &mut Vec<String>) -> Result<String> {
    ensure!(!FOLDERS.is_empty(), "the table of folders is empty, expected at least one crate");
    let mut uses = 0;
    for (path, order) in FOLDERS {
        let folder = Folder::read(path, &workspace.sources(path)?)?;
        ensure!(
            folder.paths > 0,
            "{path} names nothing of its own crate, expected an existing folder with code"
        );
        uses += folder.uses.len();
        broken.extend(broken_rules(path, order, &folder));
    }
    Ok(format!("{uses} uses between the folders of {} crates keep their order", FOLDERS.len()))
}

/// Prints an order that the sources of a folder allow, in the form of the table.
pub(super) fn print_order(workspace: &Workspace, path: &str) -> Result<()> {
    let path = path.trim_end_matches('/');
    let folder = Folder::read(path, &workspace.sources(path)?)?;
    ensure!(
        !folder.modules.is_empty(),
        "{path} has no modules, expected a folder such as crates/fiber/src"
    );
    print!("{}", order_of(path, &folder));
    Ok(())
}

impl Folder {
    /// Reads the sources of the folder `path`, which is `src` of a crate or a folder in it.
    fn read(path: &str, sources: &[Source]) -> Result<Self> {
        let inside = path.split_once("/src").with_context(|| {
            format!("invalid folder {path:?}: expected src of a crate or a folder in it, as crates/fiber/src")
        })?.1;
        let prefix: ModulePath = inside.split('/').skip(1).map(str::to_owned).collect();
        let root = &path[..path.len() - inside.len()];
        let mut for_tests = BTreeSet::new();
        let mut files: Vec<(ModulePath, &Source)> = Vec::new();
        for source in sources.iter().filter(|source| !is_test_file(&source.path)) {
            let Some(module) = module_of(root, &source.path) else { continue };
            for child in test_modules(source)? {
                for_tests.insert([&module[..], &[child]].concat());
            }
            files.push((module, source));
        }
        files.retain(|(module, _)| !(0..=module.len()).any(|n| for_tests.contains(&module[..n])));

        let modules = files.iter().filter_map(|(module, _)| module.get(prefix.len()).cloned());
        let mut folder = Self { modules: modules.collect(), ..Self::default() };
        let (mut exports, mut all) = (BTreeMap::new(), Vec::new());
        for (module, source) in files {
            for name in names(source)? {
                let from_root = module.len() == prefix.len();
                let Some(path) = absolute(&module, &name, from_root) else { continue };
                let Some(path) = path.strip_prefix(&prefix[..]).map(<[String]>::to_vec) else {
                    continue;
                };
                if from_root {
                    let called = name.alias.as_ref().or(path.last());
                    if let (Some(called), Some(first)) = (called, path.first())
                        && folder.modules.contains(first)
                        && called != "*"
                    {
                        exports.insert(called.clone(), first.clone());
                    }
                } else {
                    all.push((module[prefix.len()].clone(), path, source, name));
                }
            }
        }
        folder.paths = all.len();
        for (user, path, source, name) in all {
            let Some(first) = path.first() else { continue };
            let shown = format!("{}:{}: names {}", source.path, name.line, name.path.join("::"));
            let used =
                if folder.modules.contains(first) { Some(first) } else { exports.get(first) };
            match used.filter(|used| folder.modules.contains(*used)) {
                Some(used) if *used != user => {
                    folder.uses.push(Use { user, used: used.clone(), shown });
                }
                None if first == "*" => folder.globs.push(shown),
                _ => {}
            }
        }
        Ok(folder)
    }
}

/// The module of a file of the crate whose `src` is `root`; none for programs in `bin`.
fn module_of(root: &str, file: &str) -> Option<ModulePath> {
    let path = file.strip_prefix(root)?.strip_prefix('/')?.strip_suffix(".rs")?;
    let mut module: ModulePath = path.split('/').map(str::to_owned).collect();
    if module[0] == "bin" {
        return None;
    }
    let is_root = module.len() == 1 && (module[0] == "lib" || module[0] == "main");
    if is_root || module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    Some(module)
}

/// The path from the root of the crate that a name in `module` means. Names without `crate`, `self`
/// or `super` are those of other crates, unless the root of the folder has them.
fn absolute(module: &[String], name: &Name, from_root: bool) -> Option<ModulePath> {
    let mut here = [module, &name.within[..]].concat();
    let mut path = &name.path[..];
    match path[0].as_str() {
        "crate" => return Some(path[1..].to_vec()),
        "self" => path = &path[1..],
        "super" => {
            while path.first().is_some_and(|first| first == "super") {
                here.pop()?;
                path = &path[1..];
            }
        }
        _ if from_root => {}
        _ => return None,
    }
    Some([&here[..], path].concat())
}

fn broken_rules(path: &str, order: &[&[&str]], folder: &Folder) -> Vec<String> {
    let mut broken = Vec::new();
    let rank = |module: &str| order.iter().position(|line| line.contains(&module));
    let listed: Vec<&str> = order.iter().flat_map(|line| line.iter().copied()).collect();
    for (at, module) in listed.iter().enumerate() {
        if !folder.modules.contains(*module) {
            broken
                .push(format!("{path}/{module} does not exist: remove it from the table FOLDERS"));
        }
        if listed[..at].contains(module) {
            broken.push(format!("{path}/{module} is listed twice in the table FOLDERS"));
        }
    }
    for module in folder.modules.iter().filter(|module| rank(module).is_none()) {
        broken.push(format!(
            "{path}/{module} has no place in the table FOLDERS: \
             `cargo xtask layers --order {path}` prints one"
        ));
    }
    for Use { user, used, shown } in &folder.uses {
        // One without a place has been reported as such.
        if let (Some(above), Some(below)) = (rank(user), rank(used))
            && below >= above
        {
            broken.push(format!("{shown}: {used} is not below {user}"));
        }
    }
    broken.extend(folder.globs.iter().map(|shown| format!("{shown}: name what is used instead")));
    broken
}

/// The modules of a folder, lowest first, as lines of the table; modules that use each other in a
/// cycle stand on one line, followed by those uses.
fn order_of(path: &str, folder: &Folder) -> String {
    let modules: Vec<&str> = folder.modules.iter().map(String::as_str).collect();
    let at = |module: &str| modules.iter().position(|other| *other == module);
    let count = modules.len();
    let mut reaches = vec![vec![false; count]; count];
    for Use { user, used, .. } in &folder.uses {
        if let (Some(user), Some(used)) = (at(user), at(used)) {
            reaches[user][used] = true;
        }
    }
    for middle in 0..count {
        for from in 0..count {
            for to in 0..count {
                reaches[from][to] |= reaches[from][middle] && reaches[middle][to];
            }
        }
    }
    let in_cycle = |a: usize, b: usize| a == b || reaches[a][b] && reaches[b][a];
    let mut left: Vec<usize> = (0..count).collect();
    let mut out = format!("(\"{path}\", &[\n");
    while !left.is_empty() {
        // All that use nothing but what is printed already, or each other.
        let is_lowest = |a: &usize| left.iter().all(|b| !reaches[*a][*b] || in_cycle(*a, *b));
        let (mut lowest, rest): (Vec<usize>, Vec<usize>) = left.iter().partition(|a| is_lowest(a));
        left = rest;
        let alone = lowest.extract_if(.., |a| (0..count).all(|b| b == *a || !in_cycle(*a, b)));
        let mut lines: Vec<Vec<usize>> = vec![alone.collect()];
        while let Some(first) = lowest.first().copied() {
            lines.push(lowest.extract_if(.., |a| in_cycle(*a, first)).collect());
        }
        for (number, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
            let names: Vec<String> = line.iter().map(|a| format!("{:?}", modules[*a])).collect();
            let cycle = if number > 0 { " // a cycle" } else { "" };
            out += &format!("    &[{}],{cycle}\n", names.join(", "));
            for Use { user, used, shown } in &folder.uses {
                let is_inside = |module: &str| at(module).is_some_and(|a| line.contains(&a));
                if is_inside(user) && is_inside(used) {
                    out += &format!("    //   {user} -> {used}: {shown}\n");
                }
            }
        }
    }
    out + "]),\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &[&[&str]] = &[&["low", "beside"], &["high"]];

    fn folder(path: &str, files: &[(&str, &str)]) -> Folder {
        let source = |(file, text): &(&str, &str)| Source {
            path: format!("{path}/{file}"),
            text: (*text).into(),
        };
        Folder::read(path, &files.iter().map(source).collect::<Vec<_>>()).unwrap()
    }

    /// What is wrong with `text` in the file `low/a.rs` of a crate with three folders.
    fn broken(text: &str) -> Vec<String> {
        broken_with("pub mod high; pub use crate::high::b::Thing as Named; use high::*;", text)
    }

    fn broken_with(root: &str, text: &str) -> Vec<String> {
        let others = [("low/mod.rs", "mod a;"), ("high/mod.rs", "mod b;"), ("beside.rs", "")];
        let files = [&[("lib.rs", root), ("low/a.rs", text)], &others[..]].concat();
        broken_rules("crates/x/src", ORDER, &folder("crates/x/src", &files))
    }

    #[test]
    fn naming_an_upper_folder_is_refused() {
        for text in [
            "use crate::high::b::Thing;",
            "use crate::{low, high};",
            "use super::super::high::f;",
            "fn f() { crate::high::f() }",
            "mod inline { use super::super::super::high::f; }",
            "macro_rules! m { () => { $crate::high::f() } }",
            "use crate::Named;",
            "pub use crate::high as other;",
            "use crate::beside::f;",
        ] {
            let broken = broken(text);
            assert_eq!(broken.len(), 1, "{text}: {broken:?}");
            assert!(broken[0].starts_with("crates/x/src/low/a.rs:1: names "), "{broken:?}");
            assert!(broken[0].ends_with("is not below low"), "{broken:?}");
        }
        assert!(broken("use crate::*;")[0].contains("name what is used instead"));
    }

    #[test]
    fn naming_the_own_folder_other_crates_and_in_tests_is_allowed() {
        for text in [
            "use crate::low::a::B; use super::C; use self::d::E;",
            "use high::f; use std::high::g; use crate::Unknown;",
            "/// See [`crate::high`].\nfn f() { let high = 1; }",
            "#[cfg(test)] mod tests { use crate::high::f; }",
            "pub(crate) fn f() {} pub(in crate::low) fn g() {}",
        ] {
            assert_eq!(broken(text), Vec::<String>::new(), "{text}");
        }
        let down = folder("crates/x/src", &[("high/b.rs", "use crate::low::f;"), ("low.rs", "")]);
        assert_eq!(down.uses.len(), 1);
        assert_eq!(broken_rules("crates/x/src", &[&["low"], &["high"]], &down), [""; 0]);
    }

    #[test]
    fn modules_for_tests_have_no_place() {
        let root = "#[cfg(test)] mod faults; mod low;";
        let files =
            [("lib.rs", root), ("faults.rs", "use crate::low;"), ("low.rs", ""), ("bin/p.rs", "")];
        let folder = folder("crates/x/src", &files);
        assert_eq!(folder.modules.iter().collect::<Vec<_>>(), ["low"]);
        assert_eq!(folder.uses, []);
    }

    #[test]
    fn the_table_and_the_folders_must_agree() {
        let sources = [("lib.rs", ""), ("low.rs", "use crate::new;"), ("new.rs", "")];
        let folder = folder("crates/x/src", &sources);
        let broken = broken_rules("crates/x/src", &[&["low"], &["high", "low"]], &folder);
        assert_eq!(broken.len(), 3, "{broken:?}");
        assert!(broken[0].starts_with("crates/x/src/high does not exist"), "{broken:?}");
        assert!(broken[1].contains("low is listed twice"), "{broken:?}");
        assert!(broken[2].contains("new has no place"), "{broken:?}");
    }

    #[test]
    fn a_folder_inside_a_crate_is_checked_as_well() {
        let files = [
            ("mod.rs", "pub use self::high::Thing;"),
            ("low.rs", "use crate::part::Thing; use crate::other::f;"),
            ("high.rs", "use crate::part::low::g; use super::low::h;"),
        ];
        let folder = folder("crates/x/src/part", &files);
        let broken = broken_rules("crates/x/src/part", &[&["low"], &["high"]], &folder);
        assert_eq!(
            broken,
            ["crates/x/src/part/low.rs:1: names crate::part::Thing: high is not below low"]
        );
    }

    #[test]
    fn an_order_is_printed_and_cycles_are_shown() {
        let files = [
            ("top.rs", "use crate::a; use crate::low;"),
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::a; use crate::low;"),
            ("low.rs", "use std::fmt;"),
        ];
        let expected = "(\"crates/x/src\", &[\n    &[\"low\"],\n    &[\"a\", \"b\"], // a cycle\n    \
            //   a -> b: crates/x/src/a.rs:1: names crate::b\n    \
            //   b -> a: crates/x/src/b.rs:1: names crate::a\n    &[\"top\"],\n]),\n";
        assert_eq!(order_of("crates/x/src", &folder("crates/x/src", &files)), expected);
    }

    #[test]
    fn folders_that_are_not_there_are_an_error() {
        let workspace = Workspace::find().unwrap();
        assert!(print_order(&workspace, "crates/none/src").is_err());
        assert!(print_order(&workspace, "crates").is_err());
    }
}
