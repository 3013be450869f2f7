//! Every workload, small, on the lock-based stores with two threads.

use super::*;
use crate::bench::lock_based;
use crate::ycsb::Workload;

fn workload(letter: &str) -> Workload {
    let (name, mut properties) = Workload::properties(letter).unwrap();
    properties.set("recordcount", 500);
    properties.set("operationcount", 4000);
    properties.set("maxexecutiontime", 0);
    // Scans of up to a hundred records, the default, would take most of the time of all workloads.
    properties.set("maxscanlength", 10);
    Workload::new(&name, &properties).unwrap().0
}

#[test]
fn every_core_workload_runs_on_every_store_without_a_failure() {
    for letter in ["a", "b", "c", "d", "e", "f"] {
        let workload = workload(letter);
        let mut stores = lock_based::candidates(2);
        let scores = comparison::compare(&mut stores, &workload, 2).unwrap();
        assert_eq!(scores.len(), 5);
        for score in &scores {
            let name = format!("{} on {}", workload.name, score.name);
            for round in &score.rounds {
                assert_eq!(round.load.operations(), 500, "{name}");
                assert_eq!(round.run.operations(), 4000, "{name}");
                assert_eq!(round.load.failed() + round.run.failed(), 0, "{name}");
            }
            assert_mix(&workload, &score.run());
        }
    }
}

/// The operations occur in the proportions of the workload, within 20 %.
fn assert_mix(workload: &Workload, run: &Report) {
    let mix = workload.mix;
    for (operation, share) in [
        (Operation::Read, mix.read),
        (Operation::Update, mix.update),
        (Operation::Scan, mix.scan),
        (Operation::Insert, mix.insert),
        (Operation::ReadModifyWrite, mix.read_modify_write),
    ] {
        let count = run.latencies(operation).map_or(0, |latencies| latencies.count());
        let measured = count as f64 / run.operations() as f64;
        assert!((measured - share).abs() <= 0.2 * share, "{operation}: {measured}, not {share}");
    }
}

#[test]
fn results_are_rendered_as_text_json_and_svg() {
    let workload = workload("a");
    let scores = comparison::compare(&mut lock_based::candidates(1), &workload, 3).unwrap();
    let text = text::render(&workload, &scores);
    for part in ["workloada: 500 records of 1000 bytes", "READ", "UPDATE", "dashmap", "3 rounds"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert!(text.contains("     ratio\n") && text.contains("      1.00\n"), "{text}");
    let alone = text::render(&workload, &scores[..1]);
    assert!(!alone.contains(" ratio") && !alone.contains("      1.00\n"), "{alone}");
    let figures = json::figures(&workload, &scores);
    assert_eq!(figures.len(), 5 * (2 + 2 * 4) + 4);
    assert!(figures.iter().all(|f| f.suite == "kv" && f.median > 0.0 && f.rounds == 3));
    assert!(figures.iter().all(|f| f.min <= f.median && f.median <= f.max));
    let compared = figures.last().unwrap();
    assert_eq!(compared.peer.as_deref(), Some("dashmap"));
    assert!(compared.ratio.unwrap() > 0.0);
    let svg = plot::render(&workload, &scores);
    assert_eq!(svg.matches("<polyline").count(), 2 * scores.len());
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn a_run_ends_at_its_time_limit() {
    let (name, mut properties) = Workload::properties("c").unwrap();
    properties.set("recordcount", 10);
    properties.set("operationcount", 1_000_000_000_000u64);
    properties.set("maxexecutiontime", 1);
    let workload = Workload::new(&name, &properties).unwrap().0;
    let scores = comparison::compare(&mut lock_based::candidates(1)[..1], &workload, 1).unwrap();
    assert!(scores[0].run().operations() < 1_000_000_000_000);
    assert!(scores[0].run().elapsed.as_secs() >= 1);
}

#[test]
fn a_time_limit_beyond_the_clock_is_none() {
    let (name, mut properties) = Workload::properties("c").unwrap();
    properties.set("recordcount", 10);
    properties.set("operationcount", 100);
    properties.set("maxexecutiontime", u64::MAX);
    let workload = Workload::new(&name, &properties).unwrap().0;
    let scores = comparison::compare(&mut lock_based::candidates(1)[..1], &workload, 1).unwrap();
    assert_eq!(scores[0].run().operations(), 100);
}

#[test]
fn the_median_of_few_figures() {
    assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
    assert_eq!(Spread::of([4.0, 1.0]).median, 2.5);
    assert_eq!(Spread::of([]), Spread::default());
}
