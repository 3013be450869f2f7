//! Results as an SVG plot: throughput as bars, latency as curves over percentiles.

use gossamer_plot::svg::{Svg, colour};

use crate::bench::comparison::Score;
use crate::bench::report::{Latencies, Operation};
use crate::bench::text::{duration, headline};
use crate::ycsb::Workload;

const WIDTH: f64 = 1080.0;
const BAR_HEIGHT: f64 = 26.0;
const MARGIN_LEFT: f64 = 230.0;
const MARGIN_RIGHT: f64 = 240.0;
const PLOT_HEIGHT: f64 = 320.0;

/// Labelled percentiles of the axis, which is logarithmic in the remaining fraction.
const LABELS: [(f64, &str); 6] =
    [(0.0, "0"), (0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99")];

/// Decades of the percentile axis: up to 99.99 %.
const DECADES: f64 = 4.0;

/// Plots the results.
pub fn render(workload: &Workload, scores: &[Score]) -> String {
    let operations: Vec<Operation> = Operation::ALL
        .into_iter()
        .filter(|op| scores.iter().any(|score| score.run().latencies(*op).is_some()))
        .collect();
    let bars_height = 60.0 + scores.len() as f64 * BAR_HEIGHT;
    let height = 40.0 + bars_height + operations.len() as f64 * (PLOT_HEIGHT + 80.0);
    let mut svg = Svg::new(WIDTH, height);
    svg.text(WIDTH / 2.0, 26.0, "middle", 18, &headline(workload));
    bars(&mut svg, 40.0, scores);
    for (index, &operation) in operations.iter().enumerate() {
        let top = 40.0 + bars_height + index as f64 * (PLOT_HEIGHT + 80.0) + 30.0;
        curves(&mut svg, top, operation, scores);
    }
    svg.finish()
}

fn bars(svg: &mut Svg, top: f64, scores: &[Score]) {
    svg.text(MARGIN_LEFT, top + 24.0, "start", 14, "throughput, Mops/s (line: min to max)");
    let max = scores.iter().map(|score| score.throughput().max).fold(1.0, f64::max);
    let x = |ops: f64| MARGIN_LEFT + ops / max * (WIDTH - MARGIN_LEFT - MARGIN_RIGHT);
    for (index, score) in scores.iter().enumerate() {
        let spread = score.throughput();
        let y = top + 36.0 + index as f64 * BAR_HEIGHT;
        let middle = y + BAR_HEIGHT / 2.0;
        svg.text(MARGIN_LEFT - 8.0, middle + 4.0, "end", 13, &score.name);
        let width = x(spread.median) - MARGIN_LEFT;
        svg.rect(MARGIN_LEFT, y + 4.0, width, BAR_HEIGHT - 8.0, colour(index));
        svg.line((x(spread.min), middle), (x(spread.max), middle), "#000000");
        let value = format!("{:.2}", spread.median / 1e6);
        svg.text(x(spread.max) + 8.0, middle + 4.0, "start", 13, &value);
    }
}

fn curves(svg: &mut Svg, top: f64, operation: Operation, scores: &[Score]) {
    let runs: Vec<_> = scores.iter().map(Score::run).collect();
    let curves: Vec<(usize, &Latencies)> = runs
        .iter()
        .enumerate()
        .filter_map(|(index, run)| Some((index, run.latencies(operation)?)))
        .collect();
    let ends = |share: f64| curves.iter().map(move |(_, l)| l.quantile(share).max(1) as f64);
    let low = ends(0.0).fold(f64::MAX, f64::min).log10().floor();
    let high = ends(0.9999).fold(1.0, f64::max).log10().ceil().max(low + 1.0);
    let (left, right) = (MARGIN_LEFT, WIDTH - MARGIN_RIGHT);
    let x = |share: f64| left - (1.0 - share).log10() / DECADES * (right - left);
    let y = |ns: f64| top + PLOT_HEIGHT * (high - ns.log10()) / (high - low);
    svg.text(left, top - 10.0, "start", 14, &format!("{operation} latency by percentile"));
    for power in low as i32..=high as i32 {
        let at = y(10f64.powi(power));
        svg.line((left, at), (right, at), "#dddddd");
        svg.text(left - 8.0, at + 4.0, "end", 12, &duration(10f64.powi(power)));
    }
    for (share, label) in LABELS {
        svg.line((x(share), top), (x(share), top + PLOT_HEIGHT), "#dddddd");
        svg.text(x(share), top + PLOT_HEIGHT + 18.0, "middle", 12, label);
    }
    for (position, (index, latencies)) in curves.into_iter().enumerate() {
        let points = (0..=100).map(|step| {
            let share = 1.0 - 10f64.powf(-DECADES * f64::from(step) / 100.0);
            (x(share), y(latencies.quantile(share).max(1) as f64))
        });
        svg.polyline(points, colour(index));
        let at = top + 14.0 + position as f64 * 18.0;
        svg.rect(right + 10.0, at - 9.0, 10.0, 10.0, colour(index));
        svg.text(right + 26.0, at, "start", 12, &scores[index].name);
    }
}
