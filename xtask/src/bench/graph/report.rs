//! [`Report`]: the runs of all rounds, their medians, and the bars that they are held against.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// A program that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Program {
    Gossamer,
    OverTcp,
    Reference,
    Petgraph,
}

/// A program, its number of processes, and the scale of its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Setting {
    pub(super) scale: u32,
    pub(super) processes: u32,
    pub(super) program: Program,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { scale, processes, program } = self;
        write!(f, "scale {scale}, {processes} process(es), {}", program.name())
    }
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Gossamer => "gossamer",
            Program::OverTcp => "gossamer, TCP",
            Program::Reference => "reference",
            Program::Petgraph => "petgraph",
        }
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Run {
    pub(super) bfs_mteps: f64,
    pub(super) sssp_mteps: f64,
    /// Making the edges.
    pub(super) generation_s: f64,
    /// Building the graph from them.
    pub(super) construction_s: f64,
    /// The largest resident memory of each process, added up.
    pub(super) bytes: u64,
}

/// A quantity of a setting over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    scale: u32,
    processes: u32,
    program: &'static str,
    quantity: &'static str,
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    rounds: usize,
}

/// What is measured of a run: the name, the unit, digits after the point, and the value for a number of
/// edges.
type Quantity = (&'static str, &'static str, usize, fn(&Run, f64) -> f64);

const QUANTITIES: [Quantity; 5] = [
    ("BFS", "MTEPS", 1, |run, _| run.bfs_mteps),
    ("SSSP", "MTEPS", 1, |run, _| run.sssp_mteps),
    ("generation", "s", 2, |run, _| run.generation_s),
    ("construction", "s", 2, |run, _| run.construction_s),
    ("bytes", "per edge", 0, |run, edges| run.bytes as f64 / edges),
];

/// A bar on the ratio of ours to the reference: processes, quantity, and the least or the most.
type Bar = (u32, &'static str, Result<f64, f64>);

const BARS: [Bar; 6] = [
    (1, "BFS", Ok(0.8)),
    (1, "SSSP", Ok(1.0)),
    (1, "bytes", Err(1.3)),
    (2, "BFS", Ok(1.0)),
    (2, "SSSP", Ok(2.0)),
    (2, "bytes", Err(1.3)),
];

/// All runs.
#[derive(Default)]
pub(super) struct Report(BTreeMap<Setting, Vec<Run>>);

impl Report {
    pub(super) fn add(&mut self, setting: Setting, run: Run) {
        self.0.entry(setting).or_default().push(run);
    }

    fn row(setting: Setting, runs: &[Run], (quantity, unit, _, of): Quantity) -> Row {
        let edges = (16u64 << setting.scale) as f64;
        let mut values: Vec<f64> = runs.iter().map(|run| of(run, edges)).collect();
        values.sort_by(f64::total_cmp);
        let Setting { scale, processes, program } = setting;
        let (min, median, max) = (values[0], values[values.len() / 2], values[values.len() - 1]);
        let (program, rounds) = (program.name(), values.len());
        Row { scale, processes, program, quantity, unit, median, min, max, rounds }
    }

    /// Every quantity of every setting.
    pub(super) fn rows(&self) -> Vec<Row> {
        let of = |(setting, runs): (&Setting, &Vec<Run>)| {
            QUANTITIES.map(|quantity| Self::row(*setting, runs, quantity))
        };
        self.0.iter().flat_map(of).collect()
    }

    /// The bars: scale, processes, quantity, ratio, and whether it holds.
    fn bars(&self) -> Vec<(Setting, &'static str, f64, String, bool)> {
        let mut bars = Vec::new();
        for (setting, ours) in &self.0 {
            let peer = Setting { program: Program::Reference, ..*setting };
            let Some(theirs) = self.0.get(&peer).filter(|_| setting.program == Program::Gossamer)
            else {
                continue;
            };
            for (_, name, limit) in BARS.iter().filter(|bar| bar.0 == setting.processes) {
                let quantity = QUANTITIES.iter().find(|quantity| quantity.0 == *name);
                let Some(&quantity) = quantity else { continue };
                let [ours, theirs] = [(*setting, ours), (peer, theirs)]
                    .map(|(of, runs)| Self::row(of, runs, quantity));
                let ratio = ours.median / theirs.median;
                let (text, holds) = match *limit {
                    Ok(least) => (format!(">= {least}"), ratio >= least),
                    Err(most) => (format!("<= {most}"), ratio <= most),
                };
                bars.push((*setting, *name, ratio, text, holds));
            }
        }
        bars
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| scale | processes | program |")?;
        QUANTITIES.iter().try_for_each(|(name, unit, ..)| write!(f, " {name}, {unit} |"))?;
        writeln!(f, "\n|---|---|---|---|---|---|---|---|")?;
        for (setting, runs) in &self.0 {
            write!(
                f,
                "| {} | {} | {} |",
                setting.scale,
                setting.processes,
                setting.program.name()
            )?;
            for quantity in QUANTITIES {
                let (row, digits) = (Self::row(*setting, runs, quantity), quantity.2);
                let Row { median, min, max, .. } = row;
                write!(f, " {median:.digits$} ({min:.digits$}..{max:.digits$}) |")?;
            }
            writeln!(f)?;
        }
        let bars = self.bars();
        if !bars.is_empty() {
            writeln!(
                f,
                "\n| scale | processes | quantity | ratio | bar | |\n|---|---|---|---|---|---|"
            )?;
        }
        for (Setting { scale, processes, .. }, name, ratio, text, holds) in bars {
            let holds = if holds { "holds" } else { "**fails**" };
            writeln!(f, "| {scale} | {processes} | {name} | {ratio:.2} | {text} | {holds} |")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_medians_extremes_and_bars() {
        let run = |bfs_mteps, sssp_mteps, bytes| Run {
            bfs_mteps,
            sssp_mteps,
            generation_s: 0.5,
            construction_s: 1.0,
            bytes,
        };
        let setting = |program| Setting { scale: 5, processes: 2, program };
        let mut report = Report::default();
        for bfs in [3.0, 1.0, 2.0] {
            report.add(setting(Program::Gossamer), run(bfs, 1.0, 512 * 14));
        }
        report.add(setting(Program::Reference), run(2.0, 1.0, 512 * 10));
        let text = report.to_string();
        assert!(text.contains("| 5 | 2 | gossamer | 2.0 (1.0..3.0) | 1.0 "), "{text}");
        assert!(text.contains("| 14 (14..14) |\n"), "{text}");
        assert!(text.contains("| 5 | 2 | BFS | 1.00 | >= 1 | holds |"), "{text}");
        assert!(text.contains("| 5 | 2 | SSSP | 1.00 | >= 2 | **fails** |"), "{text}");
        assert!(text.contains("| 5 | 2 | bytes | 1.40 | <= 1.3 | **fails** |"), "{text}");
        let rows = report.rows();
        assert_eq!((rows.len(), rows[0].median, rows[0].rounds), (10, 2.0, 3));
    }
}
