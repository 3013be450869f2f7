//! Queue pairs in numbers, as a picture: writes per second over threads, with a queue pair for each
//! thread and with one for each pair of threads.

use gossamer_plot::svg::{Svg, colour};
use serde_json::Value;

use crate::suites::{QUEUE_PAIRS, THREADS, queue_pairs_case};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 60.0;

/// How many lanes lead from each of so many threads to the other host.
type Lanes = fn(u32) -> u32;

const CURVES: [(&str, Lanes); 2] =
    [("a queue pair for each thread", |_| 1), ("one for each pair of threads", |threads| threads)];

/// Draws the figures among `rows`, the list that a session writes; `None` if they are not all
/// there.
pub(crate) fn render(rows: &Value) -> Option<String> {
    let spread = |threads: u32, lanes: u32| {
        let name = queue_pairs_case(threads, threads * lanes);
        let is_it = |row: &&Value| row["suite"] == QUEUE_PAIRS && row["name"] == *name;
        let row = rows.as_array()?.iter().find(is_it)?;
        Some(["min", "median", "max"].map(|which| row[which].as_f64().unwrap_or(0.0)))
    };
    let points = |lanes: Lanes| THREADS.iter().map(move |&t| spread(t, lanes(t))).collect();
    let curves: Vec<Vec<[f64; 3]>> =
        CURVES.iter().map(|(_, lanes)| points(*lanes)).collect::<Option<_>>()?;
    let most = curves.iter().flatten().map(|[.., max]| *max).fold(f64::MIN_POSITIVE, f64::max);
    let x = |at: usize| LEFT + at as f64 / (THREADS.len() - 1) as f64 * (WIDTH - LEFT - RIGHT);
    let y = |mops: f64| HEIGHT - BOTTOM - mops / most * (HEIGHT - TOP - BOTTOM);
    let mut svg = Svg::new(WIDTH, HEIGHT);
    svg.text(
        LEFT,
        24.0,
        "start",
        14,
        "writes of 256 bytes, thousands a second (line: least to most)",
    );
    for part in 0..=4 {
        let mops = most * f64::from(part) / 4.0;
        svg.line((LEFT, y(mops)), (WIDTH - RIGHT, y(mops)), "#dddddd");
        svg.text(LEFT - 8.0, y(mops) + 4.0, "end", 12, &format!("{:.0}", mops * 1e3));
    }
    for (at, threads) in THREADS.iter().enumerate() {
        svg.text(x(at), HEIGHT - BOTTOM + 20.0, "middle", 12, &threads.to_string());
    }
    svg.text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 16.0, "middle", 13, "threads of each host");
    for (index, (curve, (label, _))) in curves.iter().zip(CURVES).enumerate() {
        svg.polyline(
            curve.iter().enumerate().map(|(at, [_, mops, _])| (x(at), y(*mops))),
            colour(index),
        );
        for (at, [min, mops, max]) in curve.iter().enumerate() {
            let x = x(at) + 4.0 * index as f64;
            svg.line((x, y(*min)), (x, y(*max)), colour(index));
            svg.rect(x - 3.0, y(*mops) - 3.0, 6.0, 6.0, colour(index));
        }
        let left = LEFT + 250.0 * index as f64;
        svg.rect(left, 36.0, 10.0, 10.0, colour(index));
        svg.text(left + 16.0, 46.0, "start", 12, label);
    }
    Some(svg.finish())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_was_measured_is_drawn() {
        let row = |threads, pairs| {
            let name = queue_pairs_case(threads, pairs);
            json!({"suite": QUEUE_PAIRS, "name": name, "min": 0.1, "median": 0.2, "max": 0.3})
        };
        let all: Vec<_> = THREADS.iter().flat_map(|&t| [row(t, t), row(t, t * t)]).collect();
        let svg = render(&Value::from(all.clone())).expect("a picture");
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(render(&Value::from(all[..all.len() - 1].to_vec())), None);
        assert_eq!(render(&json!([])), None);
    }
}
