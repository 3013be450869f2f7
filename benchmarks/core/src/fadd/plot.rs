//! Throughput over numbers of objects: a chart for each distribution, a curve for each candidate.

use bench_kit::report::Row;
use gossamer_plot::chart::{Axis, Chart, Point, Scale, Series, page};

use super::draws::Plan;

/// Draws what was measured of the plans.
pub(super) fn render(plans: &[Plan], rows: &[Row]) -> String {
    let mut charts: Vec<Chart> = Vec::new();
    for plan in plans {
        let title = format!("fetch-and-add, {} objects, {} threads", plan.kind(), plan.threads);
        let local = plan.local.map(|local| format!(", {local} % local")).unwrap_or_default();
        let title = title + &local;
        let chart = match charts.iter_mut().position(|chart| chart.title == title) {
            Some(at) => &mut charts[at],
            None => {
                let axis = |name: &str| Axis { name: name.to_owned(), scale: Scale::Logarithmic };
                let (x, y) = (axis("objects"), axis("Mops (lines: least to most)"));
                charts.push(Chart { title, x, y, series: Vec::new() });
                charts.last_mut().expect("it was just pushed")
            }
        };
        for row in rows.iter().filter(|row| row.suite == plan.name()) {
            let point = Point { x: plan.objects.into(), y: row.median, spread: (row.min, row.max) };
            // Near and far are curves of their own: they are never mixed.
            let name = match row.placement.rsplit_once(' ') {
                Some((_, class @ ("near" | "far"))) => format!("{}, {class}", row.name),
                _ => row.name.clone(),
            };
            match chart.series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => chart.series.push(Series { name, points: vec![point] }),
            }
        }
    }
    charts.iter_mut().flat_map(|chart| &mut chart.series).for_each(|series| {
        series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    });
    page(&charts)
}

#[cfg(test)]
mod tests {
    use bench_kit::harness::Unit;

    use super::super::draws::Distribution::{Uniform, Zipfian};
    use super::*;

    #[test]
    fn every_candidate_is_a_curve_in_the_chart_of_its_distribution() {
        let plan =
            |objects, distribution| Plan { objects, distribution, threads: 2, local: Some(5) };
        let plans = [plan(16, Uniform), plan(1, Uniform), plan(1, Zipfian)];
        let row = |plan: &Plan, name: &str, class: &str| Row {
            suite: plan.name(),
            name: name.to_owned(),
            placement: format!("pinned 0,1 {class}"),
            unit: Unit::Mops,
            median: 10.0,
            min: 9.0,
            max: 12.0,
            rounds: 7,
            discarded: 0,
            peer: None,
            ratio: None,
            bar: None,
            holds: None,
        };
        let rows: Vec<_> = plans
            .iter()
            .flat_map(|plan| [row(plan, "a", "near"), row(plan, "b", "near")])
            .collect();
        let svg = render(&plans, &rows);
        assert_eq!(svg.matches("<polyline").count(), 4, "{svg}");
        assert!(svg.contains("uniform objects, 2 threads, 5 % local") && svg.contains(">a, near<"));
        let far = render(&plans[..1], &[row(&plans[0], "a", "near"), row(&plans[0], "a", "far")]);
        assert_eq!(far.matches("<polyline").count(), 2, "{far}");
    }
}
