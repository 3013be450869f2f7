//! What is asked of a graph in a file: paths, statistics, components, ranks.

use std::fmt::Write;

use gossamer::{Chain, Team};
use serde::{Deserialize, Serialize};

use crate::graph::{self, Graph, Shape};
use crate::layout::{Layout, NOWHERE, Place};
use crate::memory::Estimate;
use crate::read::Input;
use crate::{bfs, components, exchange, pagerank, sssp};

/// A question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Question {
    /// The shortest path between two vertices, and its length.
    Path {
        /// Where it begins, as the file numbers vertices.
        from: u64,
        /// Where it ends.
        to: u64,
    },
    /// Vertices, edges and degrees.
    Statistics,
    /// The number of connected components, and the largest ones.
    Components,
    /// The vertices of the highest rank.
    Ranks {
        /// How many of them.
        top: usize,
    },
}

/// Builds the graph on all threads of the rack, and answers the question.
///
/// # Errors
/// In words: a graph that does not fit, a file that cannot be read any more, a vertex that is not in it.
pub fn ask(input: Input, question: Question) -> Result<String, String> {
    let member =
        |team: &Team, (input, question): (Input, Question)| answer(team, &input, &question);
    let answers = Team::try_run(member, (input, question));
    answers.map_err(|error| Chain(&error).to_string())?.swap_remove(0)
}

/// What each member does. All return the same.
fn answer(team: &Team, input: &Input, question: &Question) -> Result<String, String> {
    let search = match *question {
        Question::Path { from, to } => Some((input.vertex(from)?, input.vertex(to)?)),
        _ => None,
    };
    let shape = Shape {
        undirected: input.undirected || matches!(question, Question::Components),
        weighted: search.is_some() && input.weighted,
        delta: delta(input),
    };
    let graph = load(team, input, shape)?;
    match (question, search) {
        (Question::Path { .. }, Some((from, to))) => path(team, &graph, input, from, to),
        (Question::Ranks { top }, _) => Ok(ranks(team, &graph, input, *top)),
        (Question::Components, _) => Ok(list_components(team, &graph)),
        _ => Ok(statistics(team, &graph)),
    }
}

/// The width of a bucket: a weight that about one edge of a vertex has, but so that the longest edge
/// passes over no more than a thousand buckets.
fn delta(input: &Input) -> f32 {
    let (sum, largest) = input.weights;
    let per_edge = sum / input.edges.max(1) as f64;
    let per_vertex = per_edge / (input.edges as f64 / input.vertices.max(1) as f64).max(1.0) * 4.0;
    (per_vertex as f32).max(largest / 1000.0).clamp(f32::MIN_POSITIVE, f32::MAX)
}

/// Member 0 reads the file, and all build the graph.
fn load(team: &Team, input: &Input, shape: Shape) -> Result<Graph, String> {
    let layout = Layout::new(input.vertices, team.len()).ok_or_else(|| {
        format!("{} vertices are too many for {} threads", input.vertices, team.len())
    })?;
    let edges = input.edges * if shape.undirected { 2 } else { 1 };
    Estimate::new(&layout, edges).check(team)?;
    graph::check_edges(edges, team.len())?;
    let (mut failed, mut unopened) = (None, None);
    let built = {
        // The others have no file.
        let edges = (team.index() == 0).then(|| input.edges(&mut failed));
        let edges = edges.and_then(|opened| opened.map_err(|error| unopened = Some(error)).ok());
        Graph::build(team, layout, shape, input.edges, edges.into_iter().flatten())
    };
    let error = unopened.or(failed);
    let mine = error.map_or(Ok(()), |error| Err(Chain(&error).to_string()));
    team.all_reduce(mine, Result::and).and(built)
}

/// The shortest path.
fn path(team: &Team, graph: &Graph, input: &Input, from: u64, to: u64) -> Result<String, String> {
    let (root, end) = (graph.layout.place(from), graph.layout.place(to));
    let (parents, distances) = if graph.shape.weighted {
        let paths = sssp::search::<f64>(team, graph, root);
        (paths.parents, Some(paths.distances))
    } else {
        (bfs::search(team, graph, root), None)
    };
    let name = |place| graph.layout.vertex(place) + input.format.first();
    // Only the member that has a vertex knows the one before it.
    let mine = |place: Place| graph.local(place).map(|vertex| vertex as usize);
    let before = |place| {
        team.all_reduce(mine(place).map(|at| parents[at]), Option::or)
            .expect("every place has a member")
    };
    let mut way = vec![end];
    loop {
        match before(way[way.len() - 1]) {
            NOWHERE => return Err(format!("no path from {} to {}", name(root), name(end))),
            place if place == way[way.len() - 1] => break,
            place => way.push(place),
        }
    }
    let hops = way.len() - 1;
    let length = match distances {
        Some(distances) => team.all_reduce(mine(end).map(|at| distances[at]), Option::or),
        None => Some(hops as f64),
    };
    let names: Vec<String> = way.into_iter().rev().map(|place| name(place).to_string()).collect();
    let length = length.unwrap_or(f64::INFINITY);
    Ok(format!("length {length}, {hops} edges\n{}\n", names.join(" ")))
}

/// Vertices, edges and degrees.
fn statistics(team: &Team, graph: &Graph) -> String {
    let degrees = (0..graph.vertices() as u32).map(|vertex| u64::from(graph.degree(vertex)));
    // How many vertices have a degree below each power of two.
    let mut classes = vec![0u64; 34];
    degrees.clone().for_each(|degree| classes[64 - degree.leading_zeros() as usize] += 1);
    let sum = |a: Vec<u64>, b: Vec<u64>| a.into_iter().zip(b).map(|(a, b)| a + b).collect();
    let classes = team.all_reduce(classes, sum);
    let largest = team.all_reduce(degrees.max().unwrap_or(0), u64::max);
    let counts = team.all_reduce(vec![graph.edges() as u64, graph.loops], sum);
    let (vertices, twice) = (graph.layout.vertices(), if graph.shape.undirected { 2 } else { 1 });
    let kind = if graph.shape.undirected { "undirected" } else { "directed" };
    let mean = counts[0] as f64 / vertices.max(1) as f64;
    let mut text = format!(
        "vertices {vertices}\nedges {} ({kind}, without loops)\nloops {}\nlargest degree {largest}\n\
         mean degree {mean:.2}\ndegree    vertices\n",
        counts[0] / twice,
        counts[1]
    );
    for (class, count) in classes.iter().enumerate().filter(|(_, count)| **count > 0) {
        let range = match class {
            0 | 1 => class.to_string(),
            _ => format!("{}-{}", 1u64 << (class - 1), (1u64 << class) - 1),
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{range:<9} {count}");
    }
    text
}

/// The components.
fn list_components(team: &Team, graph: &Graph) -> String {
    let labels = components::labels(team, graph);
    let sizes = components::sizes(team, graph, &labels);
    let largest: Vec<String> = sizes.iter().take(10).map(u64::to_string).collect();
    format!("components {}\nlargest {}\n", sizes.len(), largest.join(" "))
}

/// The vertices of the highest rank.
fn ranks(team: &Team, graph: &Graph, input: &Input, top: usize) -> String {
    let (ranks, rounds) = pagerank::ranks(team, graph, 1e-9, 200);
    let highest = |mut all: Vec<(f64, u64)>| {
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        all.truncate(top);
        all
    };
    let name = |vertex| graph.layout.vertex(graph.place(vertex)) + input.format.first();
    let mine = (0..).zip(&ranks).map(|(vertex, rank)| (*rank, name(vertex))).collect();
    let all = highest(exchange::gather(team, &highest(mine), graph.layout.local(0)).concat());
    let lines = all.iter().map(|(rank, vertex)| format!("{vertex} {rank:.9}\n"));
    format!("{rounds} rounds\n{}", lines.collect::<String>())
}
