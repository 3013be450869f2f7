//! What a jam may not have: each error, word for word.

use jam_build::{Builder, Error};
use tempfile::TempDir;

use crate::common::{self, OTHER_TARGET, TARGET, error_for, error_of};

/// The error of the source `bad.rs` with this text, without the folder of the test.
fn rust(text: &str) -> String {
    shown(&error_of("bad.rs", text))
}

/// The same, of `bad.c`.
fn c(text: &str) -> String {
    let text = format!("#include \"jam.h\"\nJAM_SIGNATURE(void, void, uint8_t);\n{text}");
    shown(&error_of("bad.c", &text))
}

fn shown(error: &Error) -> String {
    let text = error.to_string();
    let Some(end) = text.find("/jams/bad.") else { return text };
    let start = text[..end].rfind([' ', '\n']).map_or(0, |at| at + 1);
    text.replace(&text[start..=end], "")
}

const NO_MEMORY: &str = "a jam has no memory of its own that can change; import a function of the \
                         receiver that owns it";

#[test]
fn statics_that_can_change() {
    let atomic = "use core::sync::atomic::{AtomicU64, Ordering};\n\
                  \n\
                  static COUNTER: AtomicU64 = AtomicU64::new(1);\n\
                  pub fn bad() -> u64 { COUNTER.fetch_add(1, Ordering::Relaxed) }";
    assert_eq!(rust(atomic), format!("jams/bad.rs:3:1: mutable static `COUNTER`: {NO_MEMORY}"));
    let inner = "pub fn bad() -> u64 {\n\
                 static mut INNER: u64 = 0;\n\
                 unsafe { INNER += 1; INNER }\n\
                 }";
    let message = rust(inner);
    assert!(message.starts_with("jams/bad.rs:3:"), "{message}");
    assert!(message.ends_with(&format!("mutable static `INNER`: {NO_MEMORY}")), "{message}");
    let in_c = "static int64_t counter = 5;\n\
                int64_t JAM_ENTRY(jam_call *call)\n\
                {\n\
                return counter++;\n\
                }";
    let message = c(in_c);
    assert!(message.starts_with("jams/bad.c:6"), "{message}");
    assert!(message.ends_with(&format!("mutable static `counter`: {NO_MEMORY}")), "{message}");
}

#[test]
fn std_is_not_there() {
    let hint = "\n\njams have `core` only, not `std`";
    for text in [
        "use std::collections::HashMap;\npub fn bad() -> u64 { HashMap::<u8, u8>::new().len() as u64 }",
        "pub fn bad() -> u64 { std::mem::size_of::<u8>() as u64 }",
    ] {
        let message = rust(text);
        assert!(message.contains("jams/bad.rs:1:") && message.ends_with(hint), "{message}");
    }
    let message = rust("pub fn bad() -> u64 { missing() }");
    assert!(message.contains("`missing`") && !message.contains(hint), "{message}");
}

#[test]
fn thread_locals() {
    let text = "static _Thread_local int64_t counter;\n\
                int64_t JAM_ENTRY(jam_call *call)\n\
                {\n\
                return counter++;\n\
                }";
    let message = c(text);
    assert!(message.starts_with("jams/bad.c:6"), "{message}");
    assert!(message.ends_with(&format!("thread-local `counter`: {NO_MEMORY}")), "{message}");
}

#[test]
fn imports_that_nobody_declares() {
    let text = "unsafe extern \"C\" {\n\
                \x20   safe fn getpid() -> i32;\n\
                }\n\
                pub fn bad() -> i32 {\n\
                \x20   getpid()\n\
                }";
    let declare = "undeclared import `getpid`: declare it with jam::import! (in C: JAM_IMPORT)";
    assert_eq!(rust(text), format!("jams/bad.rs:5:5: {declare}"));
    let text = "int getpid(void);\n\
                int64_t JAM_ENTRY(jam_call *call)\n\
                {\n\
                return 1 + getpid();\n\
                }";
    let message = c(text);
    assert!(message.starts_with("jams/bad.c:6"), "{message}");
    assert!(message.ends_with(declare), "{message}");
}

/// One record and one slot for each name, and those that a Local Function fills.
#[test]
fn imports_outside_of_the_files_own_import() {
    let message = |name: &str, how: &str| {
        format!(
            "jams/bad.rs: import `{name}` declared {how}: expected one `import!` with all imports, outside \
             of modules and functions"
        )
    };
    let top = "jam::import! { fn top(x: u32); fn fee(x: u32) -> u64; }";
    let inner = "pub mod a { jam::import! { pub fn fee(x: &[u8]) -> u64; } }";
    let bad = "pub fn bad() { a::fee(&[]); }";
    assert_eq!(rust(&format!("{top}{inner}{bad}")), message("fee", "twice"));
    let nested = message("fee", "in a module or a function");
    assert_eq!(rust(&format!("{inner}{bad}")), nested);
    let by_macro = "macro_rules! fees { () => { jam::import! { fn fee(x: u32); } } }";
    assert_eq!(rust(&format!("{by_macro} fees!(); pub fn bad() {{ fee(1) }}")), nested);
    let in_function = "pub fn bad() { jam::import! { fn fee(x: u32); } fee(1) }";
    assert_eq!(rust(in_function), nested);
}

#[test]
fn imports_with_names_of_the_compiler() {
    let end = "expected another name, since every receiver has a function of this one, which compilers call";
    let text = "jam::import! { fn memset(x: u32); }\npub fn bad() { memset(1) }";
    assert_eq!(rust(text), format!("jams/bad.rs: import `memset`: {end}"));
    let text = "JAM_IMPORT(int64_t, bcmp, (int32_t));\n\
                int64_t JAM_ENTRY(jam_call *call) { return bcmp(1); }";
    assert_eq!(c(text), format!("jams/bad.c: import `bcmp`: {end}"));
}

#[test]
fn functions_that_a_loader_chooses() {
    let text = "static int64_t one(void) { return 1; }\n\
                typedef int64_t function(void);\n\
                static function *choose(void) { return one; }\n\
                LINKAGE int64_t chosen(void) __attribute__((ifunc(\"choose\")));\n\
                int64_t JAM_ENTRY(jam_call *call) { return chosen(); }";
    for linkage in ["static", "extern"] {
        assert_eq!(
            c(&text.replace("LINKAGE", linkage)),
            "jams/bad.c: `chosen` is chosen when a program is loaded: expected a plain function, without \
             the attributes ifunc and target_clones"
        );
    }
}

#[test]
fn absolute_addresses() {
    for target in [TARGET, OTHER_TARGET] {
        // The relocations R_X86_64_64 and R_AARCH64_MOVW_UABS_G3.
        let (instruction, kind) = match target.starts_with("x86_64") {
            true => ("movabs {}, offset {}", "1 of x86_64"),
            false => ("movz {}, #:abs_g3:{}", "269 of aarch64"),
        };
        let text = format!(
            "static TABLE: [u32; 4] = [1, 2, 3, 4];\n\
             pub fn bad() -> u64 {{\n\
             \x20   let address: u64;\n\
             \x20   unsafe {{ core::arch::asm!({instruction:?}, out(reg) address, sym TABLE) }};\n\
             \x20   address\n\
             }}"
        );
        let error = error_for(target, "bad.rs", &text);
        if let (true, Error::NoLibrary { .. }) = (target == OTHER_TARGET, &error) {
            eprintln!("SKIPPED: {error}");
            continue;
        }
        let message = shown(&error);
        assert!(message.starts_with("jams/bad.rs:4:"), "{message}");
        let expected = format!(
            "`TABLE` at an absolute address ({kind}): a jam must be position-independent; remove assembly \
             or flags that prevent it"
        );
        assert!(message.ends_with(&expected), "{message}");
    }
}

#[test]
fn more_code_than_a_blob_may_have() {
    let text = "static LARGE: [u8; 1 << 20] = [7; 1 << 20];\n\
                pub fn bad(args: u64) -> u64 { u64::from(LARGE[args as usize & 0xfffff]) }";
    let message = rust(text);
    assert!(message.starts_with("jams/bad.rs:1:1: jam of 10"), "{message}");
    let expected = "its largest part is `LARGE` with 1048576";
    assert!(
        message.contains("expected at most 983040") && message.ends_with(expected),
        "{message}"
    );
}

#[test]
fn entries_that_no_jam_may_have() {
    let order = "parameter out of order: expected context, property, arguments, payload, each at most \
                 once";
    let entry = "in an entry: expected a number, an array, or a `pub struct` that jam::plain! declares \
                 in this file";
    let cases = [
        (
            "pub fn other() {}",
            "jams/bad.rs: no function `bad`: expected `pub fn bad`, named as its file".to_owned(),
        ),
        ("fn bad() {}", "jams/bad.rs:1:1: private entry: expected `pub fn`".to_owned()),
        (
            "pub async fn bad() {}",
            "jams/bad.rs:1:5: async entry: expected a plain function, since a jam may not wait"
                .to_owned(),
        ),
        (
            "pub unsafe fn bad() {}",
            "jams/bad.rs:1:5: unsafe entry: expected a safe function".to_owned(),
        ),
        (
            "pub fn bad<T>(args: T) {}",
            "jams/bad.rs:1:11: generic entry: expected one without parameters in `<>`".to_owned(),
        ),
        ("pub fn bad(args: Vec<u8>) {}", format!("jams/bad.rs:1:18: type `Vec < u8 >` {entry}")),
        ("pub fn bad(args: bool) {}", format!("jams/bad.rs:1:18: type `bool` {entry}")),
        (
            "pub fn bad() -> Option<u8> { None }",
            format!("jams/bad.rs:1:17: type `Option < u8 >` {entry}"),
        ),
        ("pub fn bad(payload: &[u8], args: u8) {}", format!("jams/bad.rs:1:28: {order}")),
        ("pub fn bad(first: u8, second: u8) {}", format!("jams/bad.rs:1:23: {order}")),
        (
            "pub fn bad(payload: &mut [u8]) {}",
            "jams/bad.rs:1:21: payload that can change: expected `&[T]`".to_owned(),
        ),
        (
            "pub fn bad(table: &Table) {}",
            "jams/bad.rs:1:19: unknown property type `Table`: declare `pub struct Table` with \
             jam::property! in this file"
                .to_owned(),
        ),
        (
            "jam::import! { fn a(); }\njam::import! { fn b(); }\npub fn bad() {}",
            "jams/bad.rs:2:1: second `import!`: expected one with all imports".to_owned(),
        ),
        ("pub fn bad( {", "jams/bad.rs:1:13: cannot parse string into token stream".to_owned()),
    ];
    for (text, expected) in cases {
        assert_eq!(rust(text), expected, "{text}");
    }
}

#[test]
fn the_compilers_errors_name_the_file() {
    let message = rust("pub fn bad() -> u64 {\n    1 + \"text\"\n}");
    assert!(message.starts_with("cannot compile jams/bad.rs:\nerror[E0277]"), "{message}");
    assert!(message.contains("--> jams/bad.rs:2:7"), "{message}");
    let message =
        rust("jam::plain! { pub struct Args { a: u64, b: u8 } }\npub fn bad(args: Args) {}");
    assert!(
        message.contains("`Args` has padding: reorder its fields, or fill the gap"),
        "{message}"
    );
    let message = rust("pub fn bad() { std::process::abort() }");
    assert!(message.starts_with("cannot compile jams/bad.rs:"), "{message}");
    let message = c("int64_t JAM_ENTRY(jam_call *call)\n{\nreturn nothing;\n}");
    assert!(message.starts_with("cannot compile jams/bad.c:\n"), "{message}");
}

#[test]
fn types_of_c_that_no_jam_may_have() {
    let message =
        c("JAM_IMPORT(long double, f, (void));\nint64_t JAM_ENTRY(jam_call *c) { return 0; }");
    let expected = "jams/bad.c: type `long double` of f: expected a type of jam.h, a number, or a \
                    pointer to a number or a property";
    assert_eq!(message, expected);
    for (types, found) in [("bool, void", "bool"), ("void, _Bool", "_Bool")] {
        let text = format!("#include \"jam.h\"\nJAM_SIGNATURE(void, {types});\n");
        let error = error_of("bad.c", &(text + "int64_t JAM_ENTRY(jam_call *c) { return 0; }"));
        let expected = format!(
            "jams/bad.c: type `{found}` in JAM_SIGNATURE: expected uint8_t, since a sender may send any byte"
        );
        assert_eq!(shown(&error), expected);
    }
    let error =
        error_of("bad.c", "#include \"jam.h\"\nint64_t JAM_ENTRY(jam_call *c) { return 0; }");
    let expected = "jams/bad.c: no JAM_SIGNATURE(PROPERTY, ARGUMENTS, ELEMENT): expected one; void for \
                    none";
    assert_eq!(shown(&error), expected);
}

#[test]
fn targets_and_folders_without_jams() {
    let error = Builder::new("riscv64gc-unknown-linux-gnu", "work").unwrap_err();
    let expected = "cannot build jams for riscv64gc-unknown-linux-gnu: expected x86_64 or aarch64 on \
                    Linux";
    assert_eq!(error.to_string(), expected);
    let (folder, builder) = common::builder(common::TARGET);
    let error = builder.build(folder.path()).unwrap_err();
    let expected = format!(
        "no jams in {}: expected files NAME.rs or NAME.c, or folders NAME with a Cargo.toml or NAME.c",
        folder.path().display()
    );
    assert_eq!(error.to_string(), expected);
}

/// A function, a module and a constant in Rust have them.
#[test]
fn names_of_sources() {
    let function = "the name of a function: letters, digits and underscores, not first a digit, and no \
                    keyword";
    let ried = "letters, digits, hyphens and underscores, not first a digit, and no keyword";
    let constant = "another one, since modules of jams and rieds have a constant of this name";
    for (path, expected) in [
        ("two-part.c", function),
        ("match.c", function),
        ("2.rs", function),
        ("a.b.rs", function),
        ("r#fn.rs", function),
        ("id.c", constant),
        ("Name.rs", constant),
        ("element.c", constant),
        ("in/Cargo.toml", ried),
        ("a.b/Cargo.toml", ried),
        ("id/id.c", constant),
    ] {
        let (folder, error) = error_of_names(&[path]);
        let element = folder.path().join(path.split('/').next().unwrap());
        let name = element.file_name().unwrap().to_str().unwrap();
        let name = name.strip_suffix(".c").or(name.strip_suffix(".rs")).unwrap_or(name);
        let path = element.display();
        assert_eq!(error, format!("invalid name {name:?} of {path}: expected {expected}"));
    }
    for (paths, name) in [
        (["twice.rs", "twice.c"], "twice"),
        (["a-b/Cargo.toml", "a_b.rs"], "a_b"),
        (["a/Cargo.toml", "a.c"], "a"),
    ] {
        let expected = format!(
            "two jams or rieds with the name `{name}`: expected one file or folder for each"
        );
        assert_eq!(error_of_names(&paths).1, expected);
    }
    let hidden = [".#lock.rs", ".hidden.c", ".ried/Cargo.toml"];
    assert!(error_of_names(&hidden).1.starts_with("no jams in "));
}

/// The error of a folder with these files, and the folder.
fn error_of_names(paths: &[&str]) -> (TempDir, String) {
    let (folder, builder) = common::builder(common::TARGET);
    for path in paths.iter().map(|path| folder.path().join(path)) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    let error = builder.build(folder.path()).expect_err("it cannot be built");
    (folder, error.to_string())
}
