//! `cargo xtask test --aarch64`: the suites of everything below TCP, built for 64-bit ARM and run by
//! QEMU on this machine. It shows that the code of other processors compiles and runs. It does not
//! show that its memory orderings are right, since emulation on x86-64 keeps the order of x86-64: the
//! loom models check them.
//!
//! Nothing is installed: a cross compiler, QEMU, and a Rust toolchain if rustup has no standard
//! library for the target, are Debian's packages, unpacked into a folder of the build output.
//!
//! Jams are built for the target by this machine, and run there. What QEMU does not emulate for single
//! programs, the isolation of executors, is tested on a whole machine (`kernel.rs`).
//!
//! Many tests start their own program again. So the programs run inside a user namespace, in which
//! `binfmt_misc` makes the kernel run programs of the target with that QEMU; nothing outside it
//! changes.

mod kernel;

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use gossamer_guest::apt::{self, Apt, run};

use crate::aarch64::kernel::Machine;
use crate::step::{Step, counted};
use crate::workspace::Workspace;

pub(crate) const TARGET: &str = "aarch64-unknown-linux-gnu";

/// The programs that this machine needs, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 4] =
    [("apt-get", "apt"), ("dpkg-deb", "dpkg"), ("mount", "mount"), ("unshare", "util-linux")];

/// Debian's packages: the cross compiler, which links and builds the parts that are C, and QEMU.
/// They come with what they depend on, unless this machine has that.
const PACKAGES: [&str; 4] =
    ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-system-arm", "qemu-user-static"];
/// A Rust toolchain, needed where rustup has no standard library for the target.
const TOOLCHAIN: [&str; 2] = ["rustc-web", "libstd-rust-web-dev"];
/// Its standard library for the target, without what that depends on.
const TARGET_LIBRARY: &str = "libstd-rust-web-dev:arm64";
/// Counted up when the way of unpacking changes, so that older folders are made again.
const RECIPE: u32 = 2;

/// The suites: arguments of `cargo test`, and a name. Doc tests are left out: each is a program
/// to link, and what they show does not depend on the processor.
const SUITES: [(&str, &str); 5] = [
    (
        "--lib --tests --package gossamer-primitive --package gossamer-jam-abi --package gossamer-jam-format \
         --package gossamer-fiber --package gossamer-transport-api --package gossamer-transport-shm \
         --package gossamer-trust-core --package gossamer-jam --package gossamer-jam-executor",
        "tests of the layers below gossamer, for aarch64",
    ),
    (
        "--lib --tests --package gossamer-rack --no-default-features --features shm",
        "tests of gossamer with the feature shm, for aarch64",
    ),
    // Without behaviours over TCP, which take long to emulate.
    (
        "--tests --package gossamer-rack-tests -- --skip tcp:: --skip tls:: --skip mixed_",
        "tests of racks, for aarch64",
    ),
    ("--lib --tests --package gossamer-mailbox", "tests of mailboxes, for aarch64"),
    (
        "--package gossamer-jam-tests --test racks --test rieds",
        "jams and rieds on racks, for aarch64",
    ),
];

/// Tests that cannot pass here, each with the reason.
const SKIPPED: &[(&str, &str)] = &[
    ("large_regions_cost_what_is_touched", "it would measure QEMU's memory"),
    ("another_user_is_refused_by_both", "the namespace has one user"),
    ("a_neighbour_of_another_user_is_refused", "the namespace has one user"),
    ("a_closure_that_gets_no_stack_is_an_error_of_its_caller", "QEMU maps any size, at a price"),
    ("a_rack_that_gets_too_few_threads_does_not_start", "QEMU ignores a limit on memory"),
    ("no_mapping_is_writable_and_executable", "QEMU shows its own list of mappings"),
    ("an_isolated_process_runs_jams_and_survives_them", "it runs on a whole machine, before"),
    ("a_written_scratch_outlasts_full_memory_for_code", "it runs on a whole machine, before"),
    ("a_deadline_beyond_the_clock_is_none", "it runs on a whole machine, before"),
    (
        "a_call_is_repeated_if_its_process_ends_before_it_begins",
        "it runs on a whole machine, before",
    ),
    ("a_command_that_is_no_host_is_named", "QEMU does not report that a program cannot be started"),
];

/// Makes the kernel run programs of the target (by their ELF header) with `$1`, and then runs the
/// rest of its arguments. `F`: the interpreter is opened now, and found whatever the root folder.
const INSIDE: &str = r#"
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc &&
printf '%s' ':gossamer-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$1:F" > /proc/sys/fs/binfmt_misc/register || exit 1
shift
exec "$@"
"#;

/// Runs the suites; an error if one fails, or has run nothing.
pub(crate) fn test(workspace: &Workspace) -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "`test --aarch64` needs Linux on x86-64, got another system"
    );
    apt::check(&PROGRAMS)?;
    let tools = Tools::ready(workspace)?;
    let probe = tools.library.join("lib/ld-linux-aarch64.so.1");
    ensure!(
        tools.inside(&workspace.root, &probe).arg("--version").works(),
        "cannot run programs for {TARGET}: this needs Linux 6.7 or newer with binfmt_misc, where \
         user namespaces are allowed (try: unshare --map-root-user --mount true)"
    );
    let skip: String = SKIPPED.iter().map(|(test, _)| format!(" --skip {test}")).collect();
    for (test, why) in SKIPPED {
        eprintln!("aarch64: skipping {test}: {why}");
    }
    let cargo = PathBuf::from(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    executors(workspace, &tools, &cargo)?;
    jams(workspace, &tools, &cargo)?;
    for (suite, name) in SUITES {
        let step = tools
            .inside(&workspace.root, &cargo)
            .args(&format!("test --target {TARGET} {suite}{}{skip}", dashes(suite)));
        counted(tools.equip(step, workspace), name)?;
    }
    Ok(())
}

/// What comes between the arguments of cargo and those of the tests, unless a suite has some of these.
fn dashes(suite: &str) -> &'static str {
    if suite.contains(" -- ") { "" } else { " --" }
}

/// Builds the jams of jam-build's tests for the target, and runs them there.
fn jams(workspace: &Workspace, tools: &Tools, cargo: &Path) -> Result<()> {
    let blobs = workspace.target().join("aarch64-jams");
    let build = "test --package gossamer-jam-build --test cross -- --ignored";
    let rustc = if tools.has_toolchain { tools.bin.join("rustc") } else { "rustc".into() };
    let step = Step::program(&workspace.root, cargo, build)
        .env("JAM_TEST_TARGET", TARGET)
        .env("JAM_TEST_RUSTC", rustc)
        .env("JAM_TEST_CC", tools.bin.join("cc"))
        .env("JAM_TEST_BLOBS", &blobs);
    counted(step, "jams, built for aarch64")?;
    let run = format!("test --target {TARGET} --package gossamer-jam-build --test execute");
    let step = tools.inside(&workspace.root, cargo).args(&run).env("JAM_TEST_BLOBS", &blobs);
    counted(tools.equip(step, workspace), "jams, run on aarch64")
}

/// Builds the tests of executors for the target, and runs them on a whole machine.
fn executors(workspace: &Workspace, tools: &Tools, cargo: &Path) -> Result<()> {
    let build = format!(
        "test --target {TARGET} --package gossamer-jam-executor --lib --no-run --message-format json"
    );
    let step = Step::program(&workspace.root, cargo, &build);
    let program = kernel::program(&tools.equip(step, workspace).capture()?)?;
    let count = tools.machine.test(&program, &tools.library, |options| {
        Step::program(&workspace.root, tools.bin.join("qemu"), options)
    })?;
    ensure!(count > 0, "no tests of executors ran on a machine of 64-bit ARM");
    println!("{count} tests of executors, on a machine of 64-bit ARM passed");
    Ok(())
}

/// The tools that build and run programs for the target.
struct Tools {
    /// With the wrapper scripts.
    bin: PathBuf,
    /// With those that are to be found by their names, as the C compiler of jams and rieds.
    path: PathBuf,
    machine: Machine,
    qemu: PathBuf,
    /// The root of the target's dynamic linker.
    library: PathBuf,
    /// Whether the toolchain is Debian's and not rustup's.
    has_toolchain: bool,
}

impl Tools {
    /// Downloads the tools, unless they are there. Other processes wait meanwhile.
    fn ready(workspace: &Workspace) -> Result<Self> {
        let cache = workspace.target().join("aarch64-tools");
        fs::create_dir_all(&cache)?;
        let lock = File::create(cache.join("lock"))?;
        lock.lock().context("cannot wait for another process that prepares the tools")?;
        let has_toolchain = !rustup_has_target(&workspace.root);
        let root = cache.join("root");
        let toolchain = if has_toolchain { &TOOLCHAIN[..] } else { &[] };
        let packages = [&PACKAGES[..], toolchain].concat();
        let (stamp, wanted) = (root.join("stamp"), format!("{RECIPE} {}", packages.join(" ")));
        let apt = Apt::new("aarch64", &cache, &["amd64", "arm64"]);
        let machine = Machine::ready(&cache, &apt)?;
        if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
            return Self::in_folder(&cache, root, machine, has_toolchain);
        }
        apt.update()?;
        let mut all = apt.with_missing(&packages)?;
        if has_toolchain {
            all.push(TARGET_LIBRARY.to_owned());
        }
        apt.unpack_programs(&all, &root)?;
        let tools = Self::in_folder(&cache, root, machine, has_toolchain)?;
        fs::write(stamp, wanted)?;
        Ok(tools)
    }

    /// Writes the wrappers for what is unpacked in `root`, and checks that they run.
    fn in_folder(
        cache: &Path,
        root: PathBuf,
        machine: Machine,
        has_toolchain: bool,
    ) -> Result<Self> {
        let bin = cache.join("bin");
        let path = cache.join("path");
        apt::make_empty(&bin)?;
        apt::make_empty(&path)?;
        let shown = root.display();
        let wrap = |name: &str, program: &str, arguments: &str| {
            let path = bin.join(name);
            let text = format!(
                "#!/bin/sh\n\
                 export LD_LIBRARY_PATH='{shown}/usr/lib/x86_64-linux-gnu' \
                 PATH='{shown}/usr/bin':\"$PATH\"\n\
                 exec '{shown}/usr/bin/{program}' {arguments} \"$@\"\n"
            );
            fs::write(&path, text)?;
            fs::set_permissions(&path, Permissions::from_mode(0o755))?;
            // Each of them knows this flag.
            run(std::process::Command::new(&path).arg("--version"), &[])
                .with_context(|| format!("Debian's {program} does not run on this machine"))
        };
        wrap("ar", "aarch64-linux-gnu-ar", "")?;
        wrap("qemu", "qemu-system-aarch64", "")?;
        wrap("objcopy", "aarch64-linux-gnu-objcopy", "")?;
        // With `-B`, the compiler names the wrapped `ar` and `objcopy`, which find their libraries.
        let options = format!("--sysroot='{shown}' -B'{}/'", bin.display());
        wrap("cc", "aarch64-linux-gnu-gcc", &options)?;
        // By its own name, and not as `cc`, which build scripts want for this machine.
        let gcc = "aarch64-linux-gnu-gcc";
        symlink(bin.join("cc"), path.join(gcc))?;
        if has_toolchain {
            wrap("rustc", "rustc", &format!("--sysroot '{shown}/usr'"))?;
            // Tests that compile a jam look for it, as programs of users do.
            symlink(bin.join("rustc"), path.join("rustc"))?;
        }
        Ok(Self {
            bin,
            path,
            qemu: root.join("usr/bin/qemu-aarch64-static"),
            library: root.join("usr/aarch64-linux-gnu"),
            machine,
            has_toolchain,
        })
    }

    /// Runs `program` where the kernel can run programs of the target.
    fn inside(&self, root: &Path, program: &Path) -> Step {
        Step::program(root, "unshare", "--map-root-user --mount sh -c")
            .arg(INSIDE)
            .arg("sh")
            .arg(&self.qemu)
            .arg(program)
            .env("QEMU_LD_PREFIX", &self.library)
    }

    /// Where programs are found: in front, the compilers for the target.
    fn search_path(&self) -> OsString {
        let before = env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(self.path.clone()).chain(env::split_paths(&before));
        // No folder of ours has a colon in its name.
        env::join_paths(all).unwrap_or(before)
    }

    /// Sets cargo's compiler, linker and folder.
    fn equip(&self, step: Step, workspace: &Workspace) -> Step {
        let step = step
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", self.bin.join("cc"))
            .env("CC_aarch64_unknown_linux_gnu", self.bin.join("cc"))
            .env("AR_aarch64_unknown_linux_gnu", self.bin.join("ar"))
            .env("PATH", self.search_path())
            // Another compiler, hence a folder of its own.
            .env("CARGO_TARGET_DIR", workspace.target().join("aarch64"))
            // Emulated code that is not optimised takes ten times as long.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "false");
        if self.has_toolchain { step.env("RUSTC", self.bin.join("rustc")) } else { step }
    }
}

/// Whether the toolchain in use has a standard library for the target.
pub(crate) fn rustup_has_target(root: &Path) -> bool {
    let rustc = Step::program(root, "rustc", "--print target-libdir --target").arg(TARGET);
    let folder = rustc.capture().unwrap_or_default();
    let folder = String::from_utf8_lossy(&folder);
    Path::new(folder.trim()).is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_exists() {
        let workspace = Workspace::find().unwrap();
        let sources = workspace.sources("crates").unwrap();
        for (test, _) in SKIPPED {
            let function = format!("fn {test}()");
            assert!(sources.iter().any(|source| source.text.contains(&function)), "no {test}");
        }
    }
}
