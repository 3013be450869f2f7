//! Checks for the programs and libraries needed to build the bindings to libibverbs, and to link it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "verbs")]
    verbs::check();
}

#[cfg(feature = "verbs")]
mod verbs {
    use std::env;
    use std::path::Path;
    use std::process::{Command, Stdio};

    /// Ends the build with an error if something is missing.
    pub(super) fn check() {
        for variable in ["PATH", "CMAKE", "CMAKE_GENERATOR", "LIBCLANG_PATH", "LIBRARY_PATH"] {
            println!("cargo::rerun-if-env-changed={variable}");
        }
        let missing: Vec<String> =
            [cmake(), make(), libclang(), libibverbs()].into_iter().flatten().collect();
        if !missing.is_empty() {
            println!(
                "cargo::error=the feature `rdma` of Gossamer cannot be built: this machine lacks {} \
                 (Debian: apt install cmake make libclang-dev libibverbs-dev; Fedora: dnf install \
                 cmake make clang-devel rdma-core-devel)",
                missing.join(", ")
            );
        }
    }

    fn cmake() -> Option<String> {
        let program = env::var("CMAKE").unwrap_or_else(|_| "cmake".into());
        (!runs(Command::new(program).arg("--version"))).then(|| "cmake".into())
    }

    /// The default generator of cmake.
    fn make() -> Option<String> {
        let is_used = env::var_os("CMAKE_GENERATOR").is_none();
        (is_used && !runs(Command::new("make").arg("--version"))).then(|| "make".into())
    }

    /// Found as bindgen finds it.
    fn libclang() -> Option<String> {
        clang_sys::load().err().map(|error| format!("libclang ({error})"))
    }

    fn libibverbs() -> Option<String> {
        // The linker of a cross build is not known here.
        if env::var_os("HOST") != env::var_os("TARGET") {
            return None;
        }
        let place = env::var_os("OUT_DIR")?;
        let linked = Path::new(&place).join("linked");
        let mut linker = Command::new("cc");
        linker.args(["-shared", "-libverbs", "-o"]).arg(linked);
        (!runs(&mut linker)).then(|| "libibverbs to link with".into())
    }

    fn runs(command: &mut Command) -> bool {
        let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        silent.status().is_ok_and(|status| status.success())
    }
}
