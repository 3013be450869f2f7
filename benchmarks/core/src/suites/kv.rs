//! The key-value store: its own benchmark program, which runs YCSB's workload C (reads by a zipfian
//! choice) on a rack and on stores with locks, in turn.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use bench_kit::harness::{Case, Peer, Placement, Suite, Unit};
use bench_kit::measure::latency::{Class, one_way_ns};
use bench_kit::measure::sampling::{CaseError, Reading, Sampler};
use serde::Deserialize;
use tempfile::TempDir;

/// Seconds that one store may run, in a sample of all of them.
const SECONDS: &str = "1";
const RECORDS: &str = "100000";
/// More than can be done in the seconds.
const OPERATIONS: &str = "1000000000";

/// How the names of the stores begin, in the program's figures, and what they are called here.
const STORES: [(&str, &str); 6] = [
    ("gossamer", "gossamer"),
    ("64 x std Mutex", "lock/64 x std Mutex"),
    ("64 x std RwLock", "lock/64 x std RwLock"),
    ("64 x parking_lot Mutex", "lock/64 x parking_lot Mutex"),
    ("64 x parking_lot RwLock", "lock/64 x parking_lot RwLock"),
    ("dashmap", "lock/dashmap"),
];

/// The suite `kv`; `program` is `kv`, if there is one.
pub(crate) fn suite(program: Option<PathBuf>) -> Suite {
    let about = "two processes of one thread, or as many threads and a lock-based store; YCSB C, \
                 zipfian; an operation is a read";
    let mut suite = Suite::new("kv", about, Placement::Pair);
    let runs = Rc::new(Runs { program, taken: RefCell::default() });
    for (store, name) in STORES {
        let runs = runs.clone();
        let case = Case::new(name, Unit::Mops, move |sampler| runs.take(sampler, store));
        suite.push(if name == "gossamer" { case.beside(Peer::best("lock/")) } else { case });
    }
    suite
}

/// One run measures all stores; each of its figures is handed out once.
struct Runs {
    program: Option<PathBuf>,
    taken: RefCell<BTreeMap<String, Reading>>,
}

impl Runs {
    fn take(&self, sampler: &Sampler, store: &str) -> Result<Reading, CaseError> {
        let Some(program) = &self.program else {
            return Err(CaseError::Absent("kv (--kv, or GOSSAMER_KV, names it)".to_owned()));
        };
        if let Some(reading) = taken(&mut self.taken.borrow_mut(), store) {
            return Ok(reading);
        }
        let mut figures = run(program, sampler)?;
        let reading = taken(&mut figures, store).ok_or_else(|| {
            let stores: Vec<_> = figures.keys().cloned().collect();
            let (program, stores) = (program.display(), stores.join(", "));
            CaseError::Failed(format!("{program} has no store `{store}...`, only {stores}"))
        })?;
        *self.taken.borrow_mut() = figures;
        Ok(reading)
    }
}

/// Takes the reading of the store whose name begins so.
fn taken(figures: &mut BTreeMap<String, Reading>, store: &str) -> Option<Reading> {
    let name = figures.keys().find(|name| name.starts_with(store)).cloned()?;
    figures.remove(&name)
}

/// The fields of a figure that are read here.
#[derive(Deserialize)]
struct Figure {
    name: String,
    unit: String,
    median: f64,
    peer: Option<String>,
}

fn run(program: &Path, sampler: &Sampler) -> Result<BTreeMap<String, Reading>, CaseError> {
    let folder = TempDir::with_prefix("core-bench-kv-")?;
    let file = folder.path().join("figures.json");
    let before = one_way_ns(sampler.cores)?;
    let mut command = Command::new(program);
    command.args(["bench", "--vs", "--rounds", "1", "--workload", "c", "--hosts", "2"]);
    command.args(["--threads", "1", "--records", RECORDS, "--operations", OPERATIONS]);
    command.args(["--seconds", SECONDS, "--json"]).arg(&file);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| {
        CaseError::Absent(format!("{} cannot be started ({e}); it", program.display()))
    })?;
    let after = one_way_ns(sampler.cores)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(CaseError::Failed(format!("{}: {said}", program.display())));
    }
    let class = Class::of(before).filter(|class| Class::of(after) == Some(*class));
    let Some(class) = class else {
        return Err(CaseError::Disturbed("the distance of the cores changed".to_owned()));
    };
    let figures: Vec<Figure> = serde_json::from_slice(&fs::read(&file)?)
        .map_err(|e| CaseError::Failed(format!("{} wrote no figures: {e}", program.display())))?;
    Ok(throughputs(figures, class))
}

/// Operations per second by store, in Mops.
fn throughputs(figures: Vec<Figure>, class: Class) -> BTreeMap<String, Reading> {
    let own = figures.into_iter().filter(|figure| figure.peer.is_none() && figure.unit == "ops/s");
    let named = own.filter_map(|figure| {
        let mut parts = figure.name.split('/').skip(1);
        let (store, what) = (parts.next()?, parts.next()?);
        let reading = Reading { class: Some(class), ..Reading::of(figure.median / 1e6) };
        (what == "throughput").then(|| (store.to_owned(), reading))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_throughputs_of_runs_count() {
        let figure = |name: &str, unit: &str, peer: Option<&str>| Figure {
            name: name.to_owned(),
            unit: unit.to_owned(),
            median: 2_500_000.0,
            peer: peer.map(str::to_owned),
        };
        let mut found = throughputs(
            vec![
                figure("workloadc/gossamer, 64 fibers/throughput", "ops/s", None),
                figure("workloadc/gossamer, 64 fibers/load throughput", "ops/s", None),
                figure("workloadc/gossamer, 64 fibers/READ p50", "ns", None),
                figure("workloadc/gossamer, 64 fibers/throughput", "ops/s", Some("dashmap")),
                figure("workloadc/dashmap/throughput", "ops/s", None),
            ],
            Class::Near,
        );
        assert_eq!(taken(&mut found, "gossamer").map(|reading| reading.value), Some(2.5));
        assert_eq!(found.keys().collect::<Vec<_>>(), ["dashmap"]);
        assert_eq!(taken(&mut found, "mutex"), None);
    }
}
