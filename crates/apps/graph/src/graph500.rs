//! The Graph500 benchmark: its kernels on its graph, 64 times from random roots, with validation.

use std::collections::HashSet;
use std::fmt::Write;
use std::time::Instant;

use gossamer::{Chain, Team};
use gossamer_plot::chart::{Axis, Chart, Point, Scale, Series, page};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use crate::graph::{self, Graph, Shape};
use crate::kronecker::{Kronecker, SEEDS, roots};
use crate::layout::{Layout, Place};
use crate::memory::Estimate;
use crate::statistics::{Statistics, line, write_block, write_rates};
use crate::{bfs, sssp, validate};

/// What to run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The graph has `2^scale` vertices,
    pub scale: u32,
    /// and so many times as many edges.
    pub edge_factor: u64,
    /// The number of roots; 64 in the specification.
    pub roots: usize,
    /// The width of a bucket of the shortest paths.
    pub delta: f32,
    /// Whether results are validated.
    pub validate: bool,
}

/// What one kernel has done, root by root.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Kernel {
    /// Seconds of each search.
    pub times: Vec<f64>,
    /// Seconds of each validation.
    pub validations: Vec<f64>,
}

/// The results of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// What was run.
    pub settings: Settings,
    /// The members of the team.
    pub members: usize,
    /// Seconds that it took to make the edges, slice by slice while the graph was built: those of the
    /// slowest member.
    pub generation: f64,
    /// Seconds that it took to build the graph from them, besides.
    pub construction: f64,
    /// The edges of each root's component.
    pub edges: Vec<f64>,
    /// Breadth-first search.
    pub bfs: Kernel,
    /// Shortest paths.
    pub sssp: Kernel,
}

/// Runs the benchmark on all threads of the rack.
///
/// # Errors
/// What is wrong with a result, or with the settings.
pub fn run(settings: Settings) -> Result<Results, String> {
    let member = |team: &Team, settings| member(team, settings);
    let results = Team::try_run(member, settings);
    let mut results = results.map_err(|error| Chain(&error).to_string())?;
    results.swap_remove(0)
}

/// What each member does. All return the same, but for the times.
fn member(team: &Team, settings: Settings) -> Result<Results, String> {
    let kronecker = Kronecker::new(settings.scale, settings.edge_factor, SEEDS);
    let layout = Layout::new(kronecker.vertices(), team.len())
        .ok_or_else(|| format!("scale {} has too many vertices", settings.scale))?;
    Estimate::new(&layout, 2 * kronecker.edges()).check(team)?;
    graph::check_edges(2 * kronecker.edges(), team.len())?;
    team.barrier();
    let start = Instant::now();
    let part = |index: usize| kronecker.edges() * index as u64 / team.len() as u64;
    let own = part(team.index())..part(team.index() + 1);
    let bar = progress(team, own.end - own.start, "edges");
    let edges = (0..).zip(kronecker.part(own.clone())).map(|(number, edge)| {
        if number % (1 << 16) == 0 {
            bar.set_position(number);
        }
        edge
    });
    let shape = Shape { undirected: true, weighted: true, delta: settings.delta };
    let graph = Graph::build(team, layout, shape, kronecker.edges(), edges)?;
    team.barrier();
    bar.finish_and_clear();
    let generation = team.all_reduce(graph.bringing.as_secs_f64(), f64::max);
    let construction = start.elapsed().as_secs_f64() - generation;
    if settings.validate {
        validate::check_rows(team, &graph, kronecker.part(own))?;
    }
    let roots = usable_roots(team, &graph, &kronecker, settings.roots);
    if roots.is_empty() {
        let error = "no vertex to search from: all edges are loops; raise the scale or edge factor";
        return Err(error.to_owned());
    }
    let bar = progress(team, 2 * roots.len() as u64, "searches");
    let members = team.len();
    let (edges, bfs, sssp) = Default::default();
    let mut results = Results { settings, members, generation, construction, edges, bfs, sssp };
    for &root in &roots {
        bar.inc(1);
        let (time, parents) = timed(team, || bfs::search(team, &graph, root));
        let (validation, edges) = timed(team, || match settings.validate {
            true => validate::check(team, &graph, root, &parents, None),
            false => Ok(traversed(team, &graph, &parents)),
        });
        results.edges.push(edges.map_err(|what| format!("bfs from {}: {what}", layout.vertex(root)))? as f64);
        results.bfs.push(time, validation);
    }
    for &root in &roots {
        bar.inc(1);
        let (time, paths) = timed(team, || sssp::search::<f32>(team, &graph, root));
        let (validation, edges) = timed(team, || match settings.validate {
            true => validate::check(team, &graph, root, &paths.parents, Some(&paths.distances)),
            false => Ok(0),
        });
        edges.map_err(|what| format!("sssp from {}: {what}", layout.vertex(root)))?;
        results.sssp.push(time, validation);
    }
    bar.finish_and_clear();
    Ok(results)
}

/// A progress bar of the first member, which shows in a terminal.
fn progress(team: &Team, len: u64, what: &'static str) -> ProgressBar {
    if team.index() > 0 {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len} {msg}");
    ProgressBar::new(len).with_style(style.expect("the template is valid")).with_message(what)
}

impl Kernel {
    fn push(&mut self, time: f64, validation: f64) {
        self.times.push(time);
        self.validations.push(validation);
    }
}

/// How long all members take for `work`.
fn timed<R>(team: &Team, work: impl FnOnce() -> R) -> (f64, R) {
    team.barrier();
    let start = Instant::now();
    let result = work();
    team.barrier();
    (start.elapsed().as_secs_f64(), result)
}

/// The first roots of the sequence that have edges, each once.
fn usable_roots(team: &Team, graph: &Graph, kronecker: &Kronecker, count: usize) -> Vec<Place> {
    let mut candidates = roots(kronecker).map(|vertex| graph.layout.place(vertex));
    let (mut found, mut seen): (Vec<Place>, HashSet<Place>) = Default::default();
    while found.len() < count {
        let some: Vec<Place> = candidates.by_ref().take(count).collect();
        if some.is_empty() {
            break;
        }
        let has_edges = |place: &Place| graph.local(*place).is_some_and(|v| graph.degree(v) > 0);
        let mine: Vec<u8> = some.iter().map(|place| u8::from(has_edges(place))).collect();
        let usable = team.all_reduce(mine, |a, b| a.iter().zip(b).map(|(a, b)| a | b).collect());
        for (place, usable) in some.into_iter().zip(usable) {
            if usable == 1 && found.len() < count && seen.insert(place) {
                found.push(place);
            }
        }
    }
    found
}

/// The edges of the component that a search has reached.
fn traversed(team: &Team, graph: &Graph, parents: &[Place]) -> u64 {
    let reached = (0..graph.vertices() as u32)
        .filter(|vertex| parents[*vertex as usize] != crate::layout::NOWHERE);
    let edges = reached.map(|vertex| u64::from(graph.degree(vertex))).sum();
    team.all_reduce(edges, |a: u64, b| a + b) / 2
}

impl Results {
    /// Millions of edges per second of a kernel: the harmonic mean.
    #[must_use]
    pub fn mteps(&self, kernel: &Kernel) -> f64 {
        let per_edge: f64 =
            kernel.times.iter().zip(&self.edges).map(|(time, edges)| time / edges).sum();
        kernel.times.len() as f64 / per_edge / 1e6
    }

    /// A line for each kernel.
    #[must_use]
    pub fn table(&self) -> String {
        let Settings { scale, edge_factor, validate, .. } = self.settings;
        let mut text = format!(
            "scale {scale}, edge factor {edge_factor}, {} roots, {} threads; the edges were made in \
             {:.2} s, and the graph built in {:.2} s\n{:<8}{:>14}{:>14}{:>14}{:>14}\n",
            self.edges.len(),
            self.members,
            self.generation,
            self.construction,
            "kernel",
            "MTEPS",
            "median ms",
            "slowest ms",
            "results"
        );
        for (name, kernel) in [("bfs", &self.bfs), ("sssp", &self.sssp)] {
            let times = Statistics::of(&kernel.times).quartiles.map(|time| time * 1e3);
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{name:<8}{:>14.1}{:>14.2}{:>14.2}{:>14}",
                self.mteps(kernel),
                times[2],
                times[4],
                if validate { "valid" } else { "not checked" }
            );
        }
        text
    }

    /// The rates of all searches of each kernel, slowest first, as SVG.
    #[must_use]
    pub fn plot(&self) -> String {
        let series = |name: &str, kernel: &Kernel| {
            let rates =
                kernel.times.iter().zip(&self.edges).map(|(time, edges)| edges / time / 1e6);
            let mut rates: Vec<f64> = rates.collect();
            rates.sort_by(f64::total_cmp);
            let points = (1u32..).zip(rates);
            let points = points.map(|(x, y)| Point { x: x.into(), y, spread: (y, y) }).collect();
            Series { name: format!("{name}, {:.0} MTEPS", self.mteps(kernel)), points }
        };
        let axis = |name: &str, scale| Axis { name: name.to_owned(), scale };
        let Settings { scale, edge_factor, .. } = self.settings;
        page(&[Chart {
            title: format!(
                "Graph500, scale {scale}, edge factor {edge_factor}, {} threads",
                self.members
            ),
            x: axis("searches, slowest first", Scale::Linear),
            y: axis("MTEPS (in the names: harmonic means)", Scale::Logarithmic),
            series: vec![series("bfs", &self.bfs), series("sssp", &self.sssp)],
        }])
    }

    /// The output block of the specification.
    #[must_use]
    pub fn block(&self) -> String {
        let mut text = String::new();
        line(&mut text, "SCALE", self.settings.scale);
        line(&mut text, "edgefactor", self.settings.edge_factor);
        line(&mut text, "NBFS", self.edges.len());
        line(&mut text, "num_mpi_processes", self.members);
        line(&mut text, "graph_generation", self.generation);
        line(&mut text, "construction_time", self.construction);
        let kernels = [("bfs  ", &self.bfs), ("sssp ", &self.sssp)];
        for (name, kernel) in kernels {
            write_block(&mut text, name, "time", &kernel.times);
        }
        write_block(&mut text, "", "nedge", &self.edges);
        for (name, kernel) in kernels {
            let per_edge: Vec<f64> =
                kernel.times.iter().zip(&self.edges).map(|(time, edges)| time / edges).collect();
            write_rates(&mut text, name, &per_edge);
        }
        if self.settings.validate {
            for (name, kernel) in kernels {
                write_block(&mut text, name, "validate", &kernel.validations);
            }
        }
        text
    }
}
