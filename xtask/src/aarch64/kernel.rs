//! The tests of isolated executors on a kernel for 64-bit ARM, which QEMU runs as a whole machine: its
//! user mode has neither seccomp nor programs in memfds. The kernel and busybox are Debian's; the
//! kernel starts with a few files in memory, the test program among them, and no disk or network.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gossamer_guest::apt::Apt;
use gossamer_guest::archive::Archive;

use crate::step::{Step, passed};

/// Debian's packages of what runs in the machine: names that depend on a kernel, and a shell.
const KERNEL: &str = "linux-image-arm64:arm64";
const SHELL: &str = "busybox-static:arm64";
/// The libraries of the test program.
const LIBRARIES: [&str; 4] = ["ld-linux-aarch64.so.1", "libc.so.6", "libgcc_s.so.1", "libm.so.6"];
/// Processors: one as old as any that is supported, and one with all that QEMU knows.
const PROCESSORS: [&str; 2] = ["cortex-a53", "max"];
/// How long a machine may take, where a few seconds are usual.
const TIMEOUT: Duration = Duration::from_secs(600);
/// What the machine prints when all tests have passed.
const PASSED: &str = "gossamer: all tests have passed";

/// The first process of the machine, and what it starts when it has a terminal.
const INIT: &str = "#!/bin/busybox sh\n\
    /bin/busybox mount -t proc proc /proc\n\
    /bin/busybox mount -t devtmpfs devices /dev\n\
    exec /bin/busybox sh /tests > /dev/ttyAMA0 2>&1\n";
const TESTS: &str = "/program --test-threads 1 --skip fuzzing && echo 'gossamer: all tests have passed'\n\
    /bin/busybox poweroff -f\n";

/// What is downloaded for the machine.
pub(super) struct Machine {
    folder: PathBuf,
}

impl Machine {
    /// Its packages in `cache`; downloads them first unless they are there.
    pub(super) fn ready(cache: &Path, apt: &Apt) -> Result<Self> {
        let machine = Self { folder: cache.join("machine") };
        let stamp = machine.folder.join("stamp");
        if stamp.exists() {
            return Ok(machine);
        }
        apt.update()?;
        let kernel = apt.dependencies(KERNEL)?.into_iter().find(|name| is_kernel(name));
        let kernel = kernel.with_context(|| format!("{KERNEL} depends on no kernel"))?;
        apt.unpack(&[kernel, SHELL.to_owned()], &machine.folder)?;
        fs::write(stamp, "")?;
        Ok(machine)
    }

    /// Runs a test program with the libraries in `libraries`, in a machine with each processor; the
    /// number of tests that passed.
    pub(super) fn test(
        &self,
        program: &Path,
        libraries: &Path,
        qemu: impl Fn(&str) -> Step,
    ) -> Result<usize> {
        let files = self.folder.join("files.cpio");
        fs::write(&files, self.files(program, libraries)?)?;
        let boot = self.folder.join("boot");
        let kernel = fs::read_dir(&boot)?.filter_map(Result::ok).map(|entry| entry.path());
        let mut kernel = kernel.filter(|path| path.to_string_lossy().contains("/vmlinuz-"));
        let kernel = kernel.next().with_context(|| format!("no kernel in {}", boot.display()))?;
        let mut count = 0;
        for processor in PROCESSORS {
            let options =
                "-machine virt -m 1024 -nographic -nodefaults -serial stdio -no-reboot -cpu";
            let step = qemu(options).arg(processor).arg("-kernel").arg(&kernel);
            let step = step.arg("-initrd").arg(&files).arg("-append");
            let step = step.arg("console=ttyAMA0 rdinit=/init quiet panic=-1");
            let printed = step.within(TIMEOUT).read()?;
            ensure!(printed.contains(PASSED), "a test failed on a {processor} of 64-bit ARM");
            count += passed(&printed);
        }
        Ok(count)
    }

    /// What the kernel finds when it starts.
    fn files(&self, program: &Path, libraries: &Path) -> Result<Vec<u8>> {
        let read = |path: PathBuf| {
            fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let mut files = Archive::default();
        for folder in ["bin", "dev", "lib", "proc", "tmp"] {
            files.folder(folder)?;
        }
        files.file("bin/busybox", &read(self.folder.join("bin/busybox"))?)?;
        for library in LIBRARIES {
            files.file(&format!("lib/{library}"), &read(libraries.join("lib").join(library))?)?;
        }
        files.file("program", &read(program.to_owned())?)?;
        files.file("tests", TESTS.as_bytes())?;
        files.file("init", INIT.as_bytes())?;
        files.finish()
    }
}

fn is_kernel(package: &str) -> bool {
    package.strip_prefix("linux-image-").is_some_and(|rest| rest.starts_with(char::is_numeric))
}

/// The test program that cargo has built, by its messages in JSON.
pub(super) fn program(messages: &[u8]) -> Result<PathBuf> {
    let messages = String::from_utf8_lossy(messages);
    let executable = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message.get("executable")?.as_str()?))
    };
    messages.lines().filter_map(executable).next_back().context("cargo has built no test program")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_and_the_program_are_found() {
        assert!(is_kernel("linux-image-6.1.0-56-arm64:arm64") && !is_kernel("linux-image-arm64"));
        let built = br#"{"reason":"compiler-artifact","executable":null}
            {"reason":"compiler-artifact","executable":"/t/jam_executor-1"}
            {"reason":"build-finished","success":true}"#;
        assert_eq!(program(built).unwrap(), Path::new("/t/jam_executor-1"));
        assert!(program(b"{}").is_err());
        assert!(TESTS.contains(PASSED));
    }
}
