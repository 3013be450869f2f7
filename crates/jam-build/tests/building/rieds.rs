//! Crates of rieds: what is built of them, and what they may not have.

use std::fs;
use std::path::Path;

use jam_abi::Abi;
use jam_build::{Builder, BuiltPackage, Error};
use jam_format::{ElementKind, Package};
use tempfile::TempDir;

use crate::common::{TARGET, builder, built};

const RIED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ried");

/// A ried: the file, and what its text is.
type Files<'a> = &'a [(&'a str, &'a str)];

/// A ried called `prices`, with these files besides its manifest, which has these dependencies.
fn build(dependencies: &str, files: Files<'_>) -> Result<BuiltPackage, Error> {
    let (folder, builder) = builder(TARGET);
    build_with(&folder, &builder, dependencies, files)
}

fn build_with(
    folder: &TempDir,
    builder: &Builder,
    dependencies: &str,
    files: Files<'_>,
) -> Result<BuiltPackage, Error> {
    let manifest = format!(
        "[package]\nname = \"prices\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"cdylib\"]\n\
         [workspace]\n[dependencies]\nried = {{ package = \"gossamer-ried\", path = {RIED:?} }}\n\
         {dependencies}\n"
    );
    build_all_with(folder, builder, &[&[("prices/Cargo.toml", &manifest[..])], files].concat())
}

fn build_all(files: Files<'_>) -> Result<BuiltPackage, Error> {
    let (folder, builder) = builder(TARGET);
    build_all_with(&folder, &builder, files)
}

fn build_all_with(
    folder: &TempDir,
    builder: &Builder,
    files: Files<'_>,
) -> Result<BuiltPackage, Error> {
    let jams = folder.path().join("jams");
    for (name, text) in files {
        let path = jams.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    builder.build(&jams)
}

fn error(dependencies: &str, files: Files<'_>) -> String {
    build(dependencies, files).expect_err("it cannot be built").to_string()
}

const SOURCE: &str = r#"
ried::property! { pub struct Shop = "tests.Shop@1"; }
ried::interface! {
    import {
        fn base_price(shop: &mut Shop, article: u64) -> u64;
    }
    export {
        fn price(shop: &mut Shop, article: u64, pieces: u64) -> u64 {
            base_price(shop, article) * pieces
        }
        fn nothing() {}
    }
}
"#;

#[test]
fn a_ried_is_packed_with_the_jams_around_it() {
    let jam = "jam::import! { fn nothing(); }\npub fn NAME() { nothing() }";
    let files = [
        ("prices/src/lib.rs", SOURCE),
        ("after.rs", &jam.replace("NAME", "after")[..]),
        ("zero.rs", &jam.replace("NAME", "zero")),
        ("no_ried/readme", "no manifest, no ried"),
    ];
    let package = built(build("", &files));
    let [ried] = &package.rieds[..] else { panic!("one ried") };
    let names = |functions: &[jam_build::RiedFunction]| {
        functions.iter().map(|f| (f.name.clone(), f.signature)).collect::<Vec<_>>()
    };
    jam_abi::property! { struct Shop = "tests.Shop@1"; }
    let nothing = jam_abi::function_signature!(());
    let price = jam_abi::function_signature!((&mut Shop, u64, u64) -> u64);
    let base_price = jam_abi::function_signature!((&mut Shop, u64) -> u64);
    assert_ne!(<&mut Shop>::SIGNATURE, <&Shop>::SIGNATURE);
    let interface = &ried.interface;
    assert_eq!(names(&interface.exports), [("nothing".into(), nothing), ("price".into(), price)]);
    assert_eq!(names(&interface.imports), [("base_price".into(), base_price)]);
    let folder = |name: &str| ried.sources.iter().any(|source| source.ends_with(name));
    assert!(["prices", "ried", "jam-abi"].into_iter().all(folder), "{:?}", ried.sources);
    assert!(interface.libraries.iter().any(|library| library.starts_with("libc.so")));
    let parsed = Package::parse(&package.bytes).expect("a package");
    let elements = parsed.elements().iter().map(|e| (e.id, e.name, e.kind));
    let (jam, of_ried) = (ElementKind::Jam, ElementKind::Ried);
    assert!(elements.eq([(0, "after", jam), (1, "prices", of_ried), (2, "zero", jam)]));
    assert_eq!(parsed.elements()[1].bytes, ried.library);
    let types: Vec<_> = parsed.types().of_element(1).functions().map(|f| f.to_string()).collect();
    let expected = [
        "fn nothing()",
        "fn price(&mut Shop, u64, u64) -> u64",
        "fn base_price(&mut Shop, u64) -> u64",
    ];
    assert_eq!(types, expected);
    assert!(!ried.library.windows(7).any(|part| part == b".symtab"), "it is stripped");
    let module = package.module(Path::new("jams.jampkg"));
    let rieds = "rieds: &[&prices::PRICES]";
    let constant = "pub static PRICES: ::jam::RiedElement";
    let zero = "pub mod zero";
    assert!([rieds, constant, zero].iter().all(|part| module.contains(part)), "{module}");
    let exports = format!("exports: &[(\"nothing\", {nothing:#x}), (\"price\", {price:#x})]");
    assert!(module.contains(&exports), "{module}");
    let id = module.split(zero).nth(1).expect("the module of `zero`");
    assert!(id.contains("pub const ID: u16 = 2;"), "{id}");
}

/// A build script prints them, so that cargo runs it again when one changes.
#[test]
fn the_folders_of_a_ried_are_those_of_all_that_changes_it() {
    let dependencies =
        "mac = { path = \"mac (1)\" }\n[build-dependencies]\nmade = { path = \"made\" }";
    let library = "[package]\nname = \"NAME\"\n";
    let mac = library.replace("NAME", "mac") + "[lib]\nproc-macro = true\n";
    let files = [
        ("prices/src/lib.rs", SOURCE),
        ("prices/mac (1)/Cargo.toml", &mac),
        ("prices/mac (1)/src/lib.rs", ""),
        ("prices/made/Cargo.toml", &library.replace("NAME", "made")),
        ("prices/made/src/lib.rs", ""),
    ];
    let package = built(build(dependencies, &files));
    let folders = &package.rieds[0].sources;
    for name in ["prices", "prices/mac (1)", "prices/made"] {
        assert!(folders.iter().any(|folder| folder.ends_with(name)), "no {name}: {folders:?}");
    }
}

#[test]
fn what_a_ried_must_not_be() {
    let empty = error("", &[("prices/src/lib.rs", "")]);
    assert!(empty.starts_with("ried `prices`: no interface: declare its functions"), "{empty}");
    let no_functions = error("", &[("prices/src/lib.rs", "ried::interface! {}")]);
    assert!(no_functions.starts_with("ried `prices`: no functions"), "{no_functions}");
    let wrong = error("", &[("prices/src/lib.rs", "fn wrong() -> u64 { \"text\" }")]);
    assert!(wrong.starts_with("cannot compile ") && wrong.contains("mismatched types"), "{wrong}");
    assert!(wrong.contains("prices/Cargo.toml:\n") && wrong.contains("src/lib.rs:1:"), "{wrong}");
    let nowhere = SOURCE.replace("base_price(shop, article)", "unsafe { nowhere(article) }");
    let nowhere = format!("unsafe extern \"C\" {{ fn nowhere(article: u64) -> u64; }}\n{nowhere}");
    let nowhere = error("", &[("prices/src/lib.rs", &nowhere)]);
    assert!(nowhere.contains("nowhere") && nowhere.contains("src/lib.rs:"), "{nowhere}");
    let manifest = "[package]\nname = \"other\"\n[workspace]\n";
    let files = [("prices/Cargo.toml", manifest), ("prices/src/lib.rs", SOURCE)];
    let other = build_all(&files).expect_err("another name").to_string();
    assert!(other.contains("is of package `other`, expected `prices`"), "{other}");
    let missing = build_all(&files[..1]).expect_err("no source").to_string();
    assert!(missing.contains("no targets specified"), "{missing}");
    let twice = [("prices/src/lib.rs", SOURCE), ("prices.rs", "pub fn prices() {}")];
    let twice = error("", &twice);
    assert!(twice.starts_with("two jams or rieds with the name `prices`"), "{twice}");
}

/// Cargo runs in the folder of the ried.
#[test]
fn a_work_folder_may_be_relative_to_the_current_one() {
    let (folder, _) = builder(TARGET);
    let work = TempDir::new_in(".").expect("a folder in that of the crate");
    let relative = Path::new(work.path().file_name().expect("a name"));
    let builder = Builder::new(TARGET, relative).expect("a known target");
    built(build_with(&folder, &builder, "", &[("prices/src/lib.rs", SOURCE)]));
    assert!(relative.join("rieds").is_dir());
}

/// With such flags, a ried could need a processor that only the machine has which builds it.
#[test]
fn flags_of_configuration_files_do_not_change_a_ried() {
    let of_all = "[build]\nrustflags = [\"--cfg\", \"flagged\"]\n";
    let of_target = format!("[target.{TARGET}]\nrustflags = [\"--cfg\", \"flagged\"]\n");
    let source = format!("#[cfg(flagged)]\ncompile_error!(\"flagged\");\n{SOURCE}");
    for config in [of_all, &of_target] {
        let files = [("prices/src/lib.rs", &source[..]), (".cargo/config.toml", config)];
        built(build("", &files));
    }
}

/// The cargo outside may hold the lock of that folder.
#[test]
fn a_ried_is_not_built_where_configuration_files_say() {
    let (folder, builder) = builder(TARGET);
    let config = "[build]\nbuild-dir = \"outer-build\"\ntarget-dir = \"outer-target\"\n";
    let files = [("prices/src/lib.rs", SOURCE), (".cargo/config.toml", config)];
    built(build_with(&folder, &builder, "", &files));
    let outer = ["outer-build", "outer-target"].map(|name| folder.path().join("jams").join(name));
    assert!(outer.iter().all(|outer| !outer.exists()));
}

#[test]
fn a_ried_may_be_in_c() {
    let main = "#include \"jam.h\"\n\
                JAM_PROPERTY(table, \"t@1\");\n\
                RIED_EXPORT(uint64_t, twice, (uint64_t));\n\
                RIED_EXPORT(int64_t, seven, (const table *, jam_bytes));\n\
                int64_t other(void);\n\
                uint64_t twice(uint64_t number) { return 2 * number; }\n\
                int64_t seven(const table *t, jam_bytes bytes) { return other() + bytes.len; }\n";
    let files = [
        ("prices/prices.c", main),
        (
            "prices/other.c",
            "#include <math.h>\n#include <stdint.h>\nstatic volatile double x = 49;\n\
                             int64_t other(void) { return sqrt(x) + pow(x, 0); }\n",
        ),
        ("prices/.#prices.c", "the lock of an editor"),
        ("none/other.c", "no ried, as there is no none.c"),
    ];
    let package = built(build_all(&files));
    let [ried] = &package.rieds[..] else { panic!("one ried") };
    jam_abi::property! { struct Table = "t@1"; }
    let twice = jam_abi::function_signature!((u64) -> u64);
    let seven = jam_abi::function_signature!((&Table, &[u8]) -> i64);
    let exports = ried.interface.exports.iter().map(|f| (&f.name[..], f.signature));
    assert!(exports.eq([("seven", seven), ("twice", twice)]), "{:?}", ried.interface);
    let libraries = &ried.interface.libraries;
    assert!(libraries.iter().any(|name| name.starts_with("libm.so")), "{libraries:?}");
    let types: Vec<_> = ried.interface.exports.iter().map(|f| &f.types[..]).collect();
    assert_eq!(types, ["(&table, &[u8]) -> i64", "(u64) -> u64"]);

    let error = |from: &str, to: &str| {
        let (changed, mut files) = (main.replace(from, to), files);
        files[0].1 = &changed;
        build_all(&files).expect_err("it cannot be built").to_string()
    };
    let wrong = error("RIED_EXPORT(uint64_t, twice", "RIED_EXPORT(int64_t, twice");
    assert!(wrong.contains("conflicting types"), "{wrong}");
    let wrong = error("twice, (uint64_t));", "thrice, (long long));");
    assert!(wrong.contains("prices/prices.c: type `long long` of thrice: expected"), "{wrong}");
    let import = "JAM_IMPORT(void, some, (void));\nRIED_EXPORT(uint64_t";
    let wrong = error("RIED_EXPORT(uint64_t", import);
    assert!(wrong.contains("import `some` of a ried in C: expected none"), "{wrong}");
    let wrong = error("return other()", "return another()");
    assert!(wrong.contains("undefined reference to `another'"), "{wrong}");
}

#[test]
fn a_ried_does_not_link_the_program() {
    let library = "[package]\nname = \"NAME\"\nedition = \"2024\"\n";
    let through = library.replace("NAME", "through")
        + "[dependencies]\ngossamer-fiber = { path = \"../fiber\" }\n";
    let files = [
        ("prices/src/lib.rs", SOURCE),
        ("fiber/Cargo.toml", &library.replace("NAME", "gossamer-fiber")),
        ("fiber/src/lib.rs", ""),
        ("through/Cargo.toml", &through),
        ("through/src/lib.rs", ""),
    ];
    // Those are below the ried, as every folder of the package with a manifest is a ried.
    let below: Vec<_> = files
        .iter()
        .map(|(name, text)| match name.starts_with("prices") {
            true => ((*name).to_owned(), *text),
            false => (format!("prices/{name}"), *text),
        })
        .collect();
    let below: Vec<_> = below.iter().map(|(name, text)| (&name[..], *text)).collect();
    let found = error("through = { path = \"through\" }", &below);
    for expected in [
        "ried `prices`: it links `gossamer-fiber` (",
        "prices/Cargo.toml:9: through > gossamer-fiber), of which the program that loads it has one \
         already: depend on `gossamer-ried` only",
    ] {
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn a_ried_needs_no_library_of_the_host() {
    let script = r#"
        use std::process::Command;
        fn main() {
            let out = std::env::var("OUT_DIR").unwrap();
            std::fs::write(format!("{out}/other.c"), "int other(void) { return 7; }").unwrap();
            let mut cc = Command::new("cc");
            cc.args(["-shared", "-fPIC", "-o"]).arg(format!("{out}/libother.so"));
            assert!(cc.arg(format!("{out}/other.c")).status().unwrap().success());
            println!("cargo::rustc-link-search={out}");
        }
    "#;
    let source = r#"
        #[link(name = "other")]
        unsafe extern "C" { safe fn other() -> i32; }
        ried::interface! { export { fn seven() -> i32 { other() } } }
    "#;
    let files = [("prices/src/lib.rs", source), ("prices/build.rs", script)];
    let found = error("", &files);
    assert!(found.starts_with("ried `prices`: it needs libother.so, which hosts"), "{found}");
}
