//! Says whether this crate is compiled optimised, as `cfg(optimised)`: what is inlined into every call
//! then costs nothing, and otherwise multiplies code. Cargo also asks for a build script where a package
//! claims a name of the linker's, as this one does for its section of closures (`registry.rs`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(optimised)");
    if std::env::var_os("OPT_LEVEL").is_some_and(|level| level != "0") {
        println!("cargo::rustc-cfg=optimised");
    }
}
