//! Sets `cfg(optimised)` if calls should be inlined into their callers. That pays only where the caller is
//! optimised; elsewhere each call adds kilobytes to its caller's frame, on a fiber's stack, and multiplies
//! code. A generic function is compiled with its caller, whose level a build script is not told. So this
//! goes by the profile: programs built with one like `dev` often optimise only their dependencies. Tests
//! that are to run what programs of a release run ask for it (`cargo xtask test`). Cargo also asks for a
//! build script where a package claims a name of the linker's, as this one does for its section of closures
//! (`registry.rs`).

/// Set by tests that are to run what programs of a release run.
const INLINE_CALLS: &str = "GOSSAMER_INLINE_CALLS";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(optimised)");
    println!("cargo::rerun-if-env-changed={INLINE_CALLS}");
    let has =
        |name: &str, wanted: fn(&str) -> bool| std::env::var(name).is_ok_and(|it| wanted(&it));
    let is_release = has("PROFILE", |profile| profile == "release") || has(INLINE_CALLS, |_| true);
    if is_release && has("OPT_LEVEL", |level| level != "0") {
        println!("cargo::rustc-cfg=optimised");
    }
}
