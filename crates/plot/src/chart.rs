//! [`Chart`]: curves over one axis. Each point may have a spread, which is drawn as a vertical line.

use crate::svg::{Svg, colour};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
/// The names of the series are on the right.
const RIGHT: f64 = 270.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;

/// How values are laid out on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From zero to the largest value.
    Linear,
    /// From the power of ten below the smallest value to the one above the largest. Values of zero and
    /// below are drawn at the smallest one.
    Logarithmic,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows, with the unit.
    pub name: String,
    /// How values are laid out.
    pub scale: Scale,
}

/// A point of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where it is on the horizontal axis.
    pub x: f64,
    /// Its value.
    pub y: f64,
    /// The smallest and the largest value that were measured there.
    pub spread: (f64, f64),
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<Point>,
}

/// Curves over one axis.
///
/// ```
/// use gossamer_plot::chart::{Axis, Chart, Point, Scale, Series, page};
///
/// let axis = |name: &str, scale| Axis { name: name.to_owned(), scale };
/// let point = |x, y| Point { x, y, spread: (y * 0.9, y * 1.1) };
/// let series = Series { name: "a lock".to_owned(), points: vec![point(1.0, 5.0), point(64.0, 80.0)] };
/// let chart = Chart {
///     title: "throughput".to_owned(),
///     x: axis("objects", Scale::Logarithmic),
///     y: axis("Mops", Scale::Linear),
///     series: vec![series],
/// };
/// assert!(page(&[chart]).contains("a lock"));
/// ```
#[derive(Clone, Debug)]
pub struct Chart {
    /// What is shown.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves.
    pub series: Vec<Series>,
}

/// One document of all charts, each below the one before.
pub fn page(charts: &[Chart]) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT * charts.len().max(1) as f64);
    for (index, chart) in charts.iter().enumerate() {
        chart.draw(&mut svg, HEIGHT * index as f64);
    }
    svg.finish()
}

impl Chart {
    fn draw(&self, svg: &mut Svg, top: f64) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let across = Range::new(self.x.scale, points().map(|point| point.x));
        let ends = points().flat_map(|point| [point.y, point.spread.0, point.spread.1]);
        let up = Range::new(self.y.scale, ends);
        let (right, bottom) = (WIDTH - RIGHT, top + HEIGHT - BOTTOM);
        let x = |value: f64| LEFT + across.share(value) * (right - LEFT);
        let y = |value: f64| bottom - up.share(value) * (bottom - top - TOP);
        svg.text(LEFT, top + 24.0, "start", 14, &self.title);
        svg.text(LEFT, top + TOP - 8.0, "start", 12, &self.y.name);
        for tick in up.ticks() {
            svg.line((LEFT, y(tick)), (right, y(tick)), "#dddddd");
            svg.text(LEFT - 8.0, y(tick) + 4.0, "end", 12, &short(tick));
        }
        for tick in across.ticks() {
            svg.line((x(tick), bottom), (x(tick), bottom + 5.0), "#888888");
            svg.text(x(tick), bottom + 18.0, "middle", 12, &short(tick));
        }
        svg.text((LEFT + right) / 2.0, bottom + 38.0, "middle", 12, &self.x.name);
        for (index, series) in self.series.iter().enumerate() {
            svg.polyline(series.points.iter().map(|point| (x(point.x), y(point.y))), colour(index));
            for point in &series.points {
                let (low, high) = point.spread;
                svg.line((x(point.x), y(low)), (x(point.x), y(high)), colour(index));
            }
            let line = top + TOP + 10.0 + 18.0 * index as f64;
            svg.rect(right + 12.0, line - 9.0, 10.0, 10.0, colour(index));
            svg.text(right + 28.0, line, "start", 12, &series.name);
        }
    }
}

/// The values of an axis.
#[derive(Clone, Copy, Debug)]
struct Range {
    scale: Scale,
    /// Of a logarithmic axis the logarithms.
    first: f64,
    last: f64,
}

impl Range {
    fn new(scale: Scale, values: impl Iterator<Item = f64>) -> Range {
        let values = values.filter(|value| value.is_finite());
        let (first, last) = match scale {
            Scale::Linear => (0.0, values.fold(0.0, f64::max)),
            Scale::Logarithmic => {
                let logs = values.filter(|value| *value > 0.0).map(f64::log10);
                let ends = |(low, high): (f64, f64), log: f64| (low.min(log), high.max(log));
                let (low, high) = logs.fold((f64::MAX, f64::MIN), ends);
                if low > high { (0.0, 1.0) } else { (low.floor(), high.ceil()) }
            }
        };
        // An axis with one value has a length, too.
        Range { scale, first, last: if last > first { last } else { first + 1.0 } }
    }

    /// Where a value is, from 0 to 1.
    fn share(self, value: f64) -> f64 {
        let at = match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.log10(),
        };
        let share = (at - self.first) / (self.last - self.first);
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    fn ticks(self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                // 1, 2 or 5 times a power of ten, so that there are 4 to 10 of them.
                let rough = self.last / 10.0;
                let power = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power);
                let step = step.into_iter().find(|step| *step >= rough).unwrap_or(self.last);
                (0..=10).map(|n| f64::from(n) * step).take_while(|at| *at <= self.last).collect()
            }
            Scale::Logarithmic => {
                (self.first as i32..=self.last as i32).map(|power| 10f64.powi(power)).collect()
            }
        }
    }
}

/// A number on an axis.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // Without the error of a sum such as 0.1 + 0.2.
    format!("{}{unit}", (value * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, points: &[(f64, f64)]) -> Chart {
        let axis = |name: &str| Axis { name: name.to_owned(), scale };
        let points = points.iter().map(|&(x, y)| Point { x, y, spread: (y, y) }).collect();
        let series = vec![Series { name: "a series".to_owned(), points }];
        Chart { title: "a title".to_owned(), x: axis("objects"), y: axis("Mops"), series }
    }

    #[test]
    fn points_are_where_their_axes_say() {
        let svg = page(&[chart(Scale::Linear, &[(0.0, 0.0), (50.0, 5.0), (100.0, 10.0)])]);
        assert!(svg.contains(r#"points="80.0,350.0 335.0,200.0 590.0,50.0""#), "{svg}");
        let svg = page(&[chart(Scale::Logarithmic, &[(1.0, 10.0), (10.0, 10.0), (100.0, 1000.0)])]);
        assert!(svg.contains(r#"points="80.0,350.0 335.0,350.0 590.0,50.0""#), "{svg}");
        for text in ["a title", "a series", ">objects<", ">Mops<", ">100<"] {
            assert!(svg.contains(text), "no {text} in {svg}");
        }
    }

    #[test]
    fn whatever_was_measured_the_document_has_only_numbers() {
        let odd = [(0.0, -1.0), (f64::NAN, f64::INFINITY), (1e300, 0.0)];
        for scale in [Scale::Linear, Scale::Logarithmic] {
            for points in [&odd[..], &odd[..1], &[]] {
                let svg = page(&[chart(scale, points)]);
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
        assert!(page(&[]).ends_with("</svg>\n"));
    }

    #[test]
    fn an_axis_has_a_handful_of_round_ticks() {
        for last in [0.7, 1.0, 3.0, 72.0, 99.0, 101.0, 12345.0] {
            let ticks = Range::new(Scale::Linear, [last].into_iter()).ticks();
            assert!((4..=11).contains(&ticks.len()), "{last}: {ticks:?}");
        }
        let ticks = Range::new(Scale::Logarithmic, [1.0, 2e6].into_iter()).ticks();
        assert_eq!(
            ticks.iter().map(|tick| short(*tick)).collect::<Vec<_>>().join(" "),
            "1 10 100 1000 10k 100k 1M 10M"
        );
    }
}
