//! The topology of a host: cores, NUMA nodes, caches, memory and RDMA devices, as `/proc` and
//! `/sys` report. Values that a system does not report are left out; they are no error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::str::FromStr;

use daemon_protocol::topology::{Cache, Node, RdmaPort, Topology};

/// Reads the topology under `root`, which is `/` except in tests.
pub(crate) fn read(root: &Path) -> Topology {
    let memory = fields(&root.join("proc/meminfo"));
    let cpus = Cpus::read(&root.join("sys/devices/system/cpu"));
    Topology {
        processor: processor(&root.join("proc/cpuinfo")),
        cpus: cpus.cpus,
        cores: cpus.cores,
        memory_bytes: kibibytes(memory.get("MemTotal")),
        available_bytes: kibibytes(memory.get("MemAvailable")),
        nodes: nodes(&root.join("sys/devices/system/node")),
        caches: cpus.caches,
        rdma: rdma(&root.join("sys/class/infiniband")),
    }
}

/// The contents of the folders of the processors.
struct Cpus {
    cpus: u32,
    cores: u32,
    caches: Vec<Cache>,
}

impl Cpus {
    fn read(directory: &Path) -> Self {
        let (mut cpus, mut cores, mut caches) = (0, BTreeSet::new(), BTreeSet::new());
        for (_, cpu) in numbered(directory, "cpu") {
            // The file of a processor that is offline contains zero; the first processor may have
            // no such file.
            if text(&cpu.join("online")).is_some_and(|online| online == "0") {
                continue;
            }
            cpus += 1;
            let topology = cpu.join("topology");
            cores.insert((
                text(&topology.join("physical_package_id")),
                text(&topology.join("die_id")),
                text(&topology.join("core_id")),
            ));
            for (_, cache) in numbered(&cpu.join("cache"), "index") {
                // The same cache shows up at each processor that shares it.
                caches.insert((
                    number::<u32>(&cache.join("level")).unwrap_or_default(),
                    text(&cache.join("type")).unwrap_or_default(),
                    text(&cache.join("size")).map(|size| bytes(&size)).unwrap_or_default(),
                    text(&cache.join("shared_cpu_list")),
                ));
            }
        }
        let mut kinds: BTreeMap<_, u32> = BTreeMap::new();
        for (level, kind, bytes, _) in caches {
            *kinds.entry((level, kind, bytes)).or_default() += 1;
        }
        let cache = |((level, kind, bytes), count)| Cache { level, kind, bytes, count };
        // A machine that does not report its cores counts as having one processor in each.
        let known = !cores.iter().all(|(_, _, core)| core.is_none());
        let cores = if known { cores.len() as u32 } else { cpus };
        Self { cpus, cores, caches: kinds.into_iter().map(cache).collect() }
    }
}

fn processor(path: &Path) -> String {
    let fields = fields(path);
    let name = ["model name", "Model", "cpu model", "CPU part"].into_iter();
    name.filter_map(|name| fields.get(name)).next().cloned().unwrap_or_default()
}

fn nodes(directory: &Path) -> Vec<Node> {
    let node = |(number, path): (u32, std::path::PathBuf)| {
        let memory = fields(&path.join("meminfo"));
        let total = memory.get(&format!("Node {number} MemTotal"));
        let cpus = text(&path.join("cpulist")).unwrap_or_default();
        Node { number, cpus, memory_bytes: kibibytes(total) }
    };
    numbered(directory, "node").into_iter().map(node).collect()
}

fn rdma(directory: &Path) -> Vec<RdmaPort> {
    let mut found = Vec::new();
    for device in names(directory) {
        for (port, path) in numbered(&directory.join(&device).join("ports"), "") {
            let word = |name: &str| text(&path.join(name)).unwrap_or_default();
            // The kernel writes `4: ACTIVE`.
            let state = word("state");
            let state = state.split_once(": ").map_or(state.as_str(), |(_, state)| state).into();
            let (link, rate) = (word("link_layer"), word("rate"));
            found.push(RdmaPort { device: device.clone(), port, state, link, rate });
        }
    }
    found
}

/// The entries of a directory that are `prefix` and a number, in the order of the numbers.
fn numbered(directory: &Path, prefix: &str) -> Vec<(u32, std::path::PathBuf)> {
    let number = |name: String| {
        let number = name.strip_prefix(prefix)?.parse().ok()?;
        Some((number, directory.join(name)))
    };
    let mut found: Vec<_> = names(directory).into_iter().filter_map(number).collect();
    found.sort();
    found
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number<T: FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

/// The lines `name: value` of a file; of those with one name, the first.
fn fields(path: &Path) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        if let Some((name, value)) = line.split_once(':') {
            fields.entry(name.trim().to_owned()).or_insert_with(|| value.trim().to_owned());
        }
    }
    fields
}

/// `16 kB`, in bytes.
fn kibibytes(value: Option<&String>) -> u64 {
    let number = value.and_then(|value| value.strip_suffix(" kB")?.trim().parse::<u64>().ok());
    number.unwrap_or_default().saturating_mul(1024)
}

/// `32K` or `8M`, in bytes.
fn bytes(size: &str) -> u64 {
    let (number, unit) = match size.as_bytes().last() {
        Some(b'K') => (&size[..size.len() - 1], 1 << 10),
        Some(b'M') => (&size[..size.len() - 1], 1 << 20),
        Some(b'G') => (&size[..size.len() - 1], 1 << 30),
        _ => (size, 1),
    };
    number.parse::<u64>().unwrap_or_default().saturating_mul(unit)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Lays out a recorded tree: `path|content` on each line.
    fn tree(recorded: &str) -> (tempfile::TempDir, Topology) {
        let root = tempfile::tempdir().unwrap();
        let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
        for line in recorded.lines().filter(|line| !line.is_empty()) {
            let (path, content) = line.split_once('|').unwrap();
            let text = files.entry(root.path().join(path)).or_default();
            text.push_str(content);
            text.push('\n');
        }
        for (path, text) in files {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let topology = read(root.path());
        (root, topology)
    }

    #[test]
    fn a_server_with_two_nodes_and_an_rdma_card() {
        let (_root, topology) = tree(include_str!("../../tests/trees/two-nodes-rdma.txt"));
        assert_eq!(topology.processor, "Intel(R) Xeon(R) Gold 6126 CPU @ 2.60GHz");
        assert_eq!((topology.cpus, topology.cores), (4, 2), "one processor is switched off");
        assert_eq!(topology.memory_bytes, 196_608 * 1024);
        assert_eq!(topology.available_bytes, 150_000 * 1024);
        let nodes: Vec<_> = topology.nodes.iter().map(|n| (n.number, n.cpus.as_str())).collect();
        assert_eq!(nodes, [(0, "0,2"), (1, "1,3")]);
        assert_eq!(topology.nodes[1].memory_bytes, 98_304 * 1024);
        let caches: Vec<_> =
            topology.caches.iter().map(|c| (c.level, c.kind.as_str(), c.bytes, c.count)).collect();
        assert_eq!(caches, [(1, "Data", 32 << 10, 2), (3, "Unified", 19712 << 10, 2)]);
        let port = &topology.rdma[0];
        assert_eq!((port.device.as_str(), port.port, port.state.as_str()), ("mlx5_0", 1, "ACTIVE"));
        assert_eq!(port.rate, "100 Gb/sec (4X EDR)");
    }

    #[test]
    fn a_small_virtual_machine() {
        let (_root, topology) = tree(include_str!("../../tests/trees/small-vm.txt"));
        assert_eq!((topology.cpus, topology.cores), (2, 2));
        assert_eq!(topology.caches.len(), 4);
        assert_eq!(topology.rdma, []);
    }

    #[test]
    fn a_system_that_tells_nothing() {
        assert_eq!(tree("").1, Topology::default());
    }

    #[test]
    fn this_machine() {
        let topology = read(Path::new("/"));
        assert!(topology.cpus > 0 && topology.cores > 0 && topology.memory_bytes > 1 << 20);
    }
}
