//! What the figures were taken on: the header of every report.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use crate::measure::cores::{Cores, on_core};
use crate::measure::{cycles, latency};

/// Processor, kernel, compiler, load, how far apart the cores are at this moment, and the versions
/// of the crates `compared`, as the lock file `lock` says.
pub fn header(cores: Cores, compared: &[&str], lock: &str) -> String {
    let mut text = String::new();
    let kernel = rustix::system::uname();
    let ghz = on_core(cores.first, cycles::per_ns)
        .map_or_else(|e| e.to_string(), |ghz| format!("{ghz:.2} GHz"));
    let apart = latency::one_way_ns(cores)
        .map_or_else(|e| e.to_string(), |ns| format!("{ns:.0} ns one way"));
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let _ = writeln!(text, "machine: {}, {cpus} CPUs, {ghz} now", processor());
    let _ = writeln!(
        text,
        "cores:   {} and {}, {apart} now (near < {} ns, far < {} ns)",
        cores.first,
        cores.second,
        latency::NEAR_BELOW_NS,
        latency::FAR_BELOW_NS
    );
    let _ = writeln!(text, "kernel:  {}", kernel.release().to_string_lossy());
    let _ = writeln!(text, "rustc:   {}", env!("BENCH_RUSTC"));
    let _ = writeln!(text, "peers:   {}", peers(compared, lock));
    let _ = writeln!(text, "load:    {}", first_line("/proc/loadavg"));
    text
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next().map(str::trim) == Some(name));
        line.and_then(|line| line.split_once(':')).map_or("?", |(_, value)| value.trim())
    };
    format!("{} (family {}, model {})", field("model name"), field("cpu family"), field("model"))
}

fn peers(compared: &[&str], lock: &str) -> String {
    let mut list: Vec<String> =
        compared.iter().map(|name| format!("{name} {}", locked_version(name, lock))).collect();
    let ucx = Command::new("ucx_info").arg("-v").output().ok();
    let ucx = ucx.and_then(|output| String::from_utf8(output.stdout).ok());
    let ucx = ucx.as_deref().and_then(|text| text.lines().next());
    let ucx = ucx.and_then(|line| line.split_whitespace().last()).unwrap_or("absent");
    list.push(format!("ucx {ucx}"));
    list.join(", ")
}

/// The newest version of a crate in a lock file: where a peer's name appears twice, the older one
/// is some other crate's dependency.
fn locked_version(name: &str, lock: &str) -> String {
    let head = format!("name = \"{name}\"");
    let mut lines = lock.lines();
    let mut newest: Option<(Vec<u64>, &str)> = None;
    while lines.any(|line| line == head) {
        let version = lines.next().and_then(|line| line.split('"').nth(1)).unwrap_or("?");
        let parts: Vec<u64> = version.split('.').map_while(|part| part.parse().ok()).collect();
        if newest.as_ref().is_none_or(|(other, _)| parts > *other) {
            newest = Some((parts, version));
        }
    }
    newest.map_or("absent", |(_, version)| version).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = include_str!("../../../Cargo.lock");

    #[test]
    fn a_crate_has_its_newest_version() {
        let lock = "name = \"one\"\nversion = \"0.9.1\"\nname = \"one\"\nversion = \"0.10.0\"\n";
        assert_eq!(locked_version("one", lock), "0.10.0");
        assert_eq!(locked_version("no-such-crate", lock), "absent");
    }

    #[test]
    fn the_header_names_the_machine() {
        let text = header(Cores::of_this_process().expect("two cores"), &["serde"], LOCK);
        for part in ["machine: ", "kernel: ", "rustc: ", "serde ", "load: "] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains('?'), "{text}");
    }
}
