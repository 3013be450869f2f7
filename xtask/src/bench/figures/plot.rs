//! Dots on a logarithmic axis, a line of them for each operation.

use gossamer_plot::svg::{Svg, colour};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 330.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 40.0;
/// Height of a line of dots.
const LINE: f64 = 24.0;
/// Width of the key of a series.
const KEY: f64 = 150.0;

/// A line of dots: the value of each series, where there is a figure.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<Option<f64>>,
}

/// The picture of these lines; `label` is the text of a value at the axis.
pub(super) fn dots(
    title: &str,
    series: &[&str],
    lines: &[Line],
    label: impl Fn(f64) -> String,
) -> String {
    let all = || lines.iter().flat_map(|line| &line.points).flatten().copied();
    let first = all().fold(f64::MAX, f64::min).max(0.1).log10().floor();
    let last = all().fold(1.0, f64::max).log10().ceil();
    let (first, last) = if first < last { (first, last) } else { (0.0, 1.0) };
    let x = |value: f64| LEFT + (value.log10() - first) / (last - first) * (WIDTH - LEFT - RIGHT);
    let bottom = TOP + LINE * lines.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + BOTTOM);
    svg.text(20.0, 24.0, "start", 14, title);
    for (at, name) in series.iter().enumerate() {
        let left = LEFT + KEY * at as f64 - 100.0;
        svg.rect(left, 40.0, 10.0, 10.0, colour(at));
        svg.text(left + 16.0, 50.0, "start", 12, name);
    }
    for power in first as i32..=last as i32 {
        let value = 10f64.powi(power);
        svg.line((x(value), TOP), (x(value), bottom), "#dddddd");
        let text = label(value).replace(".00", "").replace(".0", "");
        svg.text(x(value), bottom + 20.0, "middle", 12, &text);
    }
    for (at, Line { name, points }) in lines.iter().enumerate() {
        let y = TOP + LINE * (at as f64 + 0.5);
        svg.line((LEFT, y), (WIDTH - RIGHT, y), "#eeeeee");
        svg.text(LEFT - 12.0, y + 4.0, "end", 12, name);
        for (series, value) in points.iter().enumerate() {
            if let Some(value) = value {
                svg.rect(x(*value) - 4.0, y - 4.0, 8.0, 8.0, colour(series));
            }
        }
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::super::tables::time;
    use super::*;

    #[test]
    fn each_figure_is_a_dot() {
        let line = |points: &[Option<f64>]| Line { name: "read".to_owned(), points: points.into() };
        let lines = [line(&[Some(3.0), None]), line(&[Some(45.0), Some(2e6)])];
        let svg = dots("a title", &["one", "two"], &lines, time);
        assert_eq!(svg.matches(r#"width="8.0""#).count(), 3, "{svg}");
        for text in ["a title", "10 ns", "1 ms", "read"] {
            assert!(svg.contains(text), "no {text} in {svg}");
        }
        assert!(dots("nothing", &[], &[], time).contains("</svg>"));
    }
}
