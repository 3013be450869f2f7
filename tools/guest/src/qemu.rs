//! The machine that a guest runs on, as arguments of QEMU.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};

use crate::task::hardware_address;

/// Memory of a guest in MiB, which is also where what it writes to its file system goes.
const MEMORY: u32 = 3072;
/// The fewest and the most processors of a guest. Two threads that poll on one processor wait for
/// its timer; with more than four, an emulator is not faster.
const PROCESSORS: (usize, usize) = (2, 4);
/// An old processor is emulated faster than a new one with wide registers. With instructions for AES,
/// which it lacks, TLS does not encrypt by many others.
const EMULATED_PROCESSOR: &str = "Nehalem,+rdrand,+aes,+pclmulqdq";
/// The kernel says what goes wrong on the console, stops for good when it panics, and leaves out
/// what takes long to start where it is emulated and what guards against other guests.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 panic=-1 quiet mitigations=off nokaslr \
    random.trust_cpu=1 tsc=reliable no_timer_check cryptomgr.notests apparmor=0 audit=0 \
    rcupdate.rcu_expedited=1";
/// While a kernel starts it rewrites its own instructions. An emulator with several processors may
/// miss such a change for good, and then the kernel panics (seen in one start of twenty), so it
/// starts on one; `guest.sh` adds the others.
const ONE_AT_FIRST: &str = "maxcpus=1";

/// The argument that tells an emulated kernel how fast its clock runs, which is this machine's time
/// stamp counter. Otherwise it counts while it starts, and if this machine is busy then, it may count
/// wrong by a factor of six (seen): all that a guest waits for is then over too early. `processors` is
/// `/proc/cpuinfo`; with frequency scaling the frequency in there is another one, and nothing is told.
fn clock(processors: &str, is_scaled: bool) -> Option<String> {
    let line = processors.lines().find(|line| line.starts_with("cpu MHz"))?;
    let (mega, kilo) = line.split_once(':')?.1.trim().split_once('.')?;
    let is_whole = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_known = !is_scaled && is_whole(mega) && is_whole(kilo) && kilo.len() == 3;
    is_known.then(|| format!("tsc_early_khz={mega}{kilo}"))
}

/// [`clock`] of this machine.
fn clock_here() -> Option<String> {
    let is_scaled = Path::new("/sys/devices/system/cpu/cpu0/cpufreq").exists();
    clock(&fs::read_to_string("/proc/cpuinfo").ok()?, is_scaled)
}

/// How instructions of a guest are executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Accelerator {
    /// By the processor.
    Kvm,
    /// By QEMU's emulator.
    Emulator,
}

impl Accelerator {
    /// The one that this machine has. The device `/dev/kvm` alone shows nothing: its implementation
    /// may be unable to run a kernel that does not know about it.
    pub(crate) fn find() -> Self {
        let has = |module| Path::new("/sys/module").join(module).exists();
        let can_open = || File::options().read(true).write(true).open("/dev/kvm").is_ok();
        if (has("kvm_intel") || has("kvm_amd")) && can_open() { Self::Kvm } else { Self::Emulator }
    }
}

/// What tells the machines of a run apart, and what they have in common.
pub(crate) struct Machine<'a> {
    pub(crate) guest: u32,
    pub(crate) guests: u32,
    pub(crate) accelerator: Accelerator,
    pub(crate) kernel: &'a Path,
    /// The folder of unpacked packages.
    pub(crate) packages: &'a Path,
    /// The folder that guests share with this machine.
    pub(crate) out: &'a str,
    /// Whether the guest's console is the user's terminal.
    pub(crate) has_terminal: bool,
}

/// The files of a guest in the folder in which its QEMU runs, where their names are short enough
/// for sockets.
pub(crate) fn file(guest: u32, name: &str) -> String {
    format!("{guest}.{name}")
}

/// The socket over which two guests see each other.
pub(crate) const CABLE: &str = "cable";
/// The ports of a guest, each a socket: its two outputs, and lines between `guest.sh` and us.
pub(crate) const PORTS: [&str; 3] = ["stdout", "stderr", "control"];

impl Machine<'_> {
    /// The arguments of QEMU.
    pub(crate) fn arguments(&self) -> Result<Vec<String>> {
        let (accelerator, processor, start) = match self.accelerator {
            Accelerator::Kvm => ("kvm", "host", String::new()),
            Accelerator::Emulator => {
                let start = format!("{ONE_AT_FIRST} {}", clock_here().unwrap_or_default());
                ("tcg,thread=multi", EMULATED_PROCESSOR, start)
            }
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let processors = processors.clamp(PROCESSORS.0, PROCESSORS.1);
        let alone = "-machine q35 -display none -nodefaults -no-user-config -no-reboot";
        let mut all: Vec<String> = alone.split(' ').map(str::to_owned).collect();
        let mut add = |option: &str, value: &str| {
            all.extend([format!("-{option}"), value.to_owned()]);
        };
        add("accel", accelerator);
        add("cpu", processor);
        add("smp", &processors.to_string());
        add("m", &MEMORY.to_string());
        add("kernel", utf8(self.kernel)?);
        add("initrd", &file(self.guest, "initrd"));
        add("append", format!("{KERNEL_ARGUMENTS} {start}").trim_end());
        add("serial", &format!("file:{}", file(self.guest, "console")));

        add("device", "virtio-serial-pci");
        for port in PORTS {
            let socket = file(self.guest, port);
            add("chardev", &format!("socket,id={port},path={socket}"));
            add("device", &format!("virtserialport,chardev={port},name={port}"));
        }
        if self.has_terminal {
            // What is typed is the guest's, Ctrl-C too.
            add("chardev", "stdio,id=terminal,signal=off");
            add("device", "virtconsole,chardev=terminal");
        }
        for (name, folder, rights) in [
            ("machine", Path::new("/"), ",readonly=on"),
            ("packages", self.packages, ",readonly=on"),
            ("out", Path::new(self.out), ""),
        ] {
            let folder = utf8(folder)?.replace(',', ",,");
            let files = format!("local,id={name},path={folder},security_model=none");
            add("fsdev", &format!("{files},multidevs=remap{rights}"));
            add("device", &format!("virtio-9p-pci,fsdev={name},mount_tag={name}"));
        }
        if self.guests > 1 {
            // The first listens; the other is started when it does.
            let server = if self.guest == 0 { "on" } else { "off" };
            let to = format!("addr.type=unix,addr.path={CABLE}");
            add("netdev", &format!("stream,id=cable,server={server},{to}"));
            let address = hardware_address(self.guest);
            add("device", &format!("virtio-net-pci,netdev=cable,mac={address},romfile="));
        }
        Ok(all)
    }
}

/// A path as QEMU takes it.
pub(crate) fn utf8(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8, which QEMU needs", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(guest: u32, guests: u32, accelerator: Accelerator, terminal: bool) -> Vec<String> {
        let machine = Machine {
            guest,
            guests,
            accelerator,
            kernel: Path::new("/cache/vmlinux"),
            packages: Path::new("/ca,che/root"),
            out: "/out",
            has_terminal: terminal,
        };
        machine.arguments().unwrap()
    }

    fn has(arguments: &[String], option: &str, value: &str) -> bool {
        arguments.windows(2).any(|pair| pair[0] == option && pair[1].contains(value))
    }

    #[test]
    fn this_machine_is_read_only_for_a_guest_but_for_one_folder() {
        let alone = arguments(0, 1, Accelerator::Emulator, false);
        let shared: Vec<_> = alone.windows(2).filter(|pair| pair[0] == "-fsdev").collect();
        assert_eq!(shared.len(), 3);
        for pair in shared {
            assert_eq!(pair[1].ends_with("readonly=on"), !pair[1].contains("id=out"), "{pair:?}");
        }
        assert!(has(&alone, "-fsdev", "path=/ca,,che/root,"));
        for port in PORTS {
            assert!(has(&alone, "-chardev", &format!("socket,id={port},path=0.{port}")));
        }
        assert!(!has(&alone, "-chardev", "stdio") && !has(&alone, "-netdev", ""));
        assert!(has(&arguments(0, 1, Accelerator::Kvm, true), "-chardev", "stdio"));
    }

    #[test]
    fn an_emulated_kernel_starts_on_one_processor() {
        let emulated = arguments(0, 1, Accelerator::Emulator, false);
        assert!(has(&emulated, "-accel", "tcg") && has(&emulated, "-append", ONE_AT_FIRST));
        let real = arguments(0, 1, Accelerator::Kvm, false);
        assert!(has(&real, "-accel", "kvm") && !has(&real, "-append", ONE_AT_FIRST));
        assert!(has(&real, "-cpu", "host"));
    }

    #[test]
    fn an_emulated_kernel_is_told_how_fast_its_clock_runs() {
        let processors = "processor\t: 0\ncpu MHz\t\t: 2596.122\nflags\t\t: tsc\n";
        assert_eq!(clock(processors, false).as_deref(), Some("tsc_early_khz=2596122"));
        assert_eq!(clock(processors, true), None, "it may be another frequency");
        for unknown in ["", "cpu MHz", "cpu MHz\t: fast", "cpu MHz\t: 2596", "cpu MHz\t: 2.5e3"] {
            assert_eq!(clock(unknown, false), None, "{unknown}");
        }
    }

    #[test]
    fn two_guests_are_on_one_cable() {
        let [first, second] = [0, 1].map(|guest| arguments(guest, 2, Accelerator::Kvm, false));
        assert!(has(&first, "-netdev", "server=on") && has(&second, "-netdev", "server=off"));
        assert!(has(&first, "-device", "mac=02:00:0a:4d:00:01"));
        assert!(has(&second, "-device", "mac=02:00:0a:4d:00:02"));
        assert!(has(&second, "-initrd", "1.initrd"));
    }

    #[test]
    fn a_folder_that_qemu_cannot_be_told_is_named() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let error = utf8(Path::new(OsStr::from_bytes(b"/\xff"))).unwrap_err().to_string();
        assert!(error.contains("not UTF-8"), "{error}");
    }
}
