//! Looks for what it takes to build the bindings to libibverbs, and to link with it.

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
                "cargo::error=Gossamer's feature `rdma` cannot be built on this machine, which \
                 lacks {}. On Debian: apt install cmake make libclang-dev libibverbs-dev. \
                 On Fedora: dnf install cmake make clang-devel rdma-core-devel",
                missing.join(", ")
            );
        }
    }

    fn cmake() -> Option<String> {
        let program = env::var("CMAKE").unwrap_or_else(|_| "cmake".into());
        (!runs(Command::new(program).arg("--version"))).then(|| "cmake".into())
    }

    /// What cmake has do the work, unless it is told otherwise.
    fn make() -> Option<String> {
        let is_used = env::var_os("CMAKE_GENERATOR").is_none();
        (is_used && !runs(Command::new("make").arg("--version"))).then(|| "make".into())
    }

    /// Looks as the generator of the bindings does.
    fn libclang() -> Option<String> {
        clang_sys::load().err().map(|error| format!("libclang ({error})"))
    }

    fn libibverbs() -> Option<String> {
        // Another machine's linker is not ours to guess.
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
