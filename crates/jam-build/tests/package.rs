//! What a build script makes of a folder of jams: a package, and a module that a program includes.

mod common;

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use common::{JAMS, TARGET};
use jam_format::Package;
use tempfile::TempDir;

/// Runs the test `name` of this program as a build script, with `out` as its folder.
fn build_script(name: &str, out: &Path) -> Output {
    script_command(name, out).output().expect("it runs")
}

fn script_command(name: &str, out: &Path) -> Command {
    let mut child = Command::new(env::current_exe().expect("this program"));
    child.args(["--exact", name, "--ignored", "--nocapture"]);
    child.env("OUT_DIR", out).env("TARGET", TARGET).env("HOST", TARGET).env("RUSTC", "rustc");
    child
}

#[test]
#[ignore = "is a build script, which another test runs"]
fn script() {
    let built = jam_build::package(JAMS).expect("the committed jams are right");
    assert_eq!(built.name, "jams");
}

/// Compiles a crate, and fails with what the compiler says.
fn rustc(out: &Path, arguments: &[&str]) {
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "-Dwarnings"]).args(arguments).current_dir(out);
    let output = rustc.output().expect("rustc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A program that has the package, with the receiver's functions that its Local Functions need.
const PROGRAM: &str = r#"
#![deny(missing_docs, unsafe_op_in_unsafe_fn)]
//! A program.

/// The package.
pub mod jams {
    include!("jams.rs");
}

use jams::{indirect_put, server_side_sum, torture, weighted_sum};

unsafe extern "C" fn log(_: *const jam::ContextData, _: *const u8, _: usize) {}

extern "C" fn results_push(_: *mut u8, sum: i64) -> u64 {
    sum as u64 + 1
}

fn main() {
    let sum: jam::Jam<&mut server_side_sum::Results, (), i32, i64> = server_side_sum::SERVER_SIDE_SUM;
    let _: jam::Jam<&mut weighted_sum::results, u64, i32, i64> = weighted_sum::WEIGHTED_SUM;
    let _ = (indirect_put::PutArgs { key: 1, offset: 2 }, torture::TortureArgs { index: 0, divisor: 1 });
    for (id, element) in jams::PACKAGE.jams.iter().enumerate() {
        assert_eq!(usize::from(element.id), id);
        println!("{} {} {} {}", element.name, element.id, element.property, element.local.is_some());
    }
    let local = sum.element().local.unwrap();
    let [import] = local.imports else { panic!("one import") };
    // SAFETY: the function has the types of the import.
    unsafe { import.resolve(results_push as *const ()) };
    let (values, mut reply) = ([1_i32, 2, 3, 4], [0_i64; 2]);
    let context = jam::ContextData { sender: 0, reserved: 0, log, receiver: std::ptr::null_mut() };
    let mut call = jam::Call {
        property: std::ptr::without_provenance_mut(16),
        args: values.as_ptr().cast(),
        args_len: 0,
        payload: values.as_ptr().cast(),
        payload_len: 16,
        reply: reply.as_mut_ptr().cast(),
        reply_capacity: 8,
        reply_len: 0,
        context: &context,
        count: 1,
        done: 0,
        step: 0,
    };
    // SAFETY: the call is as the jam's signature says, and its memory outlives it.
    let code = unsafe { (local.entry)(&mut call) };
    println!("{code} {} {}", call.reply_len, reply[0]);

    // In C: what it imports is called directly, and through an address in its data.
    let local = weighted_sum::WEIGHTED_SUM.element().local.unwrap();
    let resolve = |name: &str, function| {
        let import = local.imports.iter().find(|import| import.name() == name).expect("an import");
        // SAFETY: the function has the types of the import.
        unsafe { import.resolve(function) };
    };
    resolve("weight_of", weight_of as *const ());
    resolve("results_push", results_push as *const ());
    resolve("text_equal", text_equal as *const ());
    let mode = 0_u64;
    (call.args, call.args_len) = ((&raw const mode).cast(), 8);
    (call.count, call.done, call.reply_len) = (1, 0, 0);
    // SAFETY: as above.
    let code = unsafe { (local.entry)(&mut call) };
    println!("{code} {} {}", call.reply_len, reply[0]);
    resolve("weight_of", panics as *const ());
    std::panic::set_hook(Box::new(|_| ()));
    // SAFETY: as above.
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| unsafe { (local.entry)(&mut call) }));
    println!("{}", panic.unwrap_err().downcast_ref::<&str>().unwrap());
}

extern "C" fn weight_of(index: u64) -> i64 {
    10 * index as i64
}

extern "C" fn text_equal(text: jam::Slice<u8>, _: *const u8, len: usize) -> bool {
    text.len == len
}

extern "C-unwind" fn panics(_: u64) -> i64 {
    panic!("through C")
}
"#;

#[test]
fn a_program_includes_its_package() {
    let folder = TempDir::new().expect("a folder");
    let out = folder.path();
    let script = build_script("script", out);
    let printed = String::from_utf8_lossy(&script.stdout);
    assert!(script.status.success(), "{printed}{}", String::from_utf8_lossy(&script.stderr));
    assert!(printed.contains("cargo::rerun-if-changed=tests/jams\n"), "{printed}");
    let search = format!("cargo::rustc-link-search=native={}\n", out.display());
    assert!(printed.contains(&search), "{printed}");
    let bytes = fs::read(out.join("jams.jampkg")).expect("a package");
    let package = Package::parse(&bytes).expect("a package");
    assert_eq!(package.elements().len(), 4);
    let types: Vec<_> = package.types().functions().map(|f| (f.id, f.to_string())).collect();
    for expected in [
        (0, "fn indirect_put(&mut Table, PutArgs, &[u8]) -> i64"),
        (1, "fn results_push(&mut Results, i64) -> u64"),
        // In C: as the same types of Rust.
        (3, "fn weighted_sum(&mut results, u64, &[i32]) -> i64"),
        (3, "fn text_equal(&str, *const u8, usize) -> bool"),
        (3, "fn weight_of(u64) -> i64"),
    ] {
        let (id, text) = expected;
        assert!(types.contains(&(id, text.to_owned())), "{types:?} lacks {expected:?}");
    }
    let abi = concat!(env!("CARGO_MANIFEST_DIR"), "/../jam-abi/src/lib.rs");
    let any_cfg = ["--check-cfg", "cfg(jam_injected)", "--check-cfg", "cfg(test)"];
    rustc(out, &[&any_cfg[..], &["--crate-name", "jam", "--crate-type", "rlib", abi]].concat());
    fs::write(out.join("main.rs"), PROGRAM).expect("a program");
    // As the build script has told cargo.
    rustc(out, &["--extern", "jam=libjam.rlib", "-L", "native=.", "main.rs"]);
    let output = Command::new(out.join("main")).output().expect("it runs");
    let expected = "indirect_put 0 bench.Table@1 true\n\
                    server_side_sum 1 bench.Results@1 true\n\
                    torture 2  true\n\
                    weighted_sum 3 bench.Results@1 true\n\
                    0 8 10\n\
                    0 8 200\n\
                    through C\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
#[ignore = "is a build script, which another test runs"]
fn script_of_another() {
    jam_build::package("jams").expect("a compiler");
}

/// Also those outside of the folder, which may change alone.
#[test]
fn a_build_script_says_which_files_were_read() {
    let folder = TempDir::new().expect("a folder");
    let root = folder.path().canonicalize().expect("a folder").join("my project");
    let jam = "#include \"../jam s.h\"\nint64_t JAM_ENTRY(jam_call *call) { return 7; }\n";
    let manifest = format!(
        "[package]\nname = \"four\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         ried = {{ package = \"gossamer-ried\", path = {:?} }}\n",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../ried")
    );
    for (name, text) in [
        (
            "jams/one.rs",
            "#[path = \"../part.rs\"] mod part;\n\
             pub fn one() -> u64 { include!(concat!(env!(\"OUT_DIR\"), \"/made.rs\")) }",
        ),
        ("out/made.rs", "part::PART"),
        ("part.rs", "pub const PART: u64 = include_bytes!(\"bytes\").len() as u64;"),
        ("bytes", "of a jam"),
        ("jams/two.c", jam),
        ("jam s.h", "#include \"jam.h\"\nJAM_SIGNATURE(void, void, void);\n"),
        ("jams/three/three.c", "#include \"../../ried.h\"\nint64_t three(void) { return 3; }\n"),
        ("ried.h", "#include \"jam.h\"\nRIED_EXPORT(int64_t, three, (void));\n"),
        ("jams/four/Cargo.toml", &manifest),
        ("jams/four/src/lib.rs", "include!(\"../../../ried.rs\");"),
        ("ried.rs", "ried::interface! { export { fn four() -> u64 { 4 } } }"),
    ] {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    let mut script = script_command("script_of_another", &root.join("out"));
    let output = script.current_dir(&root).output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    let watched = printed.lines().filter_map(|line| line.strip_prefix("cargo::rerun-if-changed="));
    let there = |path| root.join(path).canonicalize().expect("a file that exists");
    let watched: Vec<_> = watched.map(there).collect();
    for name in ["jams", "part.rs", "bytes", "jam s.h", "ried.h", "ried.rs"] {
        assert!(watched.contains(&root.join(name)), "no {name}: {printed}");
    }
    let made = watched.iter().filter(|path| path.starts_with(root.join("out")));
    assert_eq!(made.count(), 0, "{printed}");
}

/// As makefiles have it: words, or nothing. A folder may be named as it likes.
#[test]
fn a_build_script_takes_a_c_compiler_with_arguments() {
    let folder = TempDir::new().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    for folder in ["jams", "clang tools", "clang"] {
        fs::create_dir(at(folder)).expect("a folder");
    }
    let jam = "#include \"jam.h\"\nJAM_SIGNATURE(void, void, void);\n\
               int64_t JAM_ENTRY(jam_call *call) { return WORD; }\n";
    fs::write(at("jams/seven.c"), jam.replace("WORD", "0")).expect("a source");
    // They are gcc, which does not know --target.
    for gcc in ["clang/gcc", "clang tools/gcc"] {
        let text = "#!/bin/sh\nfor word; do case $word in --target=*) exit 1;; esac; done\nexec cc \"$@\"\n";
        fs::write(at(gcc), text).expect("a script");
        fs::set_permissions(at(gcc), Permissions::from_mode(0o755)).expect("a program");
    }
    let run = |cc: &str| {
        let mut child = script_command("script_of_another", folder.path());
        let output = child.current_dir(folder.path()).env("CC", cc).output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for gcc in ["", "  ", "env cc", "clang/gcc", "env clang/gcc", "clang tools/gcc"] {
        let (is_built, printed) = run(gcc);
        assert!(is_built, "{gcc:?}: {printed}");
    }
    fs::write(at("jams/seven.c"), jam).expect("a source");
    assert!(run("cc -DWORD=7").0 && !run("cc").0);
}

#[test]
fn a_build_script_needs_cargo() {
    let mut child = Command::new(env::current_exe().expect("this program"));
    child.args(["--exact", "script", "--ignored"]).env_remove("OUT_DIR");
    let output = child.output().expect("it runs");
    assert!(!output.status.success());
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.contains("no environment variable OUT_DIR: call this in a build script"),
        "{printed}"
    );
}
