//! Says by `cfg(optimised)` whether this crate's calls are inlined into the code that makes them, which has
//! to be optimised for that: elsewhere each of them costs its caller's frame some kilobytes of a fiber's
//! stack, and multiplies code. A generic function is compiled with its caller, whose level a build script
//! is not told. So this goes by the profile: programs made by one like `dev` often optimise what they
//! depend on, and not themselves. Cargo also asks for a build script where a package claims a name of the
//! linker's, as this one does for its section of closures (`registry.rs`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(optimised)");
    let has =
        |name: &str, wanted: fn(&str) -> bool| std::env::var(name).is_ok_and(|it| wanted(&it));
    if has("OPT_LEVEL", |level| level != "0") && has("PROFILE", |profile| profile == "release") {
        println!("cargo::rustc-cfg=optimised");
    }
}
