//! What must not compile, and what the compiler says then. `ui/pass.rs` must run: a program that
//! has to run makes trybuild build all of them completely, and captures are found when a call is
//! instantiated, which `cargo check` does not do. Messages changed? `TRYBUILD=overwrite` writes the
//! new ones, to be looked at.

#[test]
fn misuse_does_not_compile() {
    let folder = if cfg!(feature = "nightly") { "ui-nightly" } else { "ui" };
    let tests = trybuild::TestCases::new();
    tests.pass(format!("tests/{folder}/pass.rs"));
    for entry in std::fs::read_dir(format!("tests/{folder}")).expect("a folder of programs") {
        let path = entry.expect("a readable folder").path();
        if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("pass.rs") {
            tests.compile_fail(path);
        }
    }
}
