//! [`Graph`]: one member's part of a graph, in compressed sparse rows, and how a team builds it.
//!
//! Every member brings edges from anywhere. It sorts them by the members that have their first vertex,
//! and sends each member its share, a slice of the edges at a time: [`Team::all_to_all`] of vectors of
//! numbers. What has arrived is then sorted into rows, by counting.

use std::time::{Duration, Instant};

use gossamer::Team;
use serde::{Deserialize, Serialize};

use crate::kronecker::Edge;
use crate::layout::{Layout, Place};

/// Edges that a member sends between two exchanges.
const SLICE: usize = 1 << 16;

/// Edges of a member, at most: rows count them in 32 bits.
const MOST_EDGES: u64 = u32::MAX as u64;

/// Checks before a graph is built that its members can have so many edges (those of undirected graphs
/// counted twice), if they have about as many each.
///
/// # Errors
/// In words, with the number of members that can.
pub fn check_edges(edges: u64, members: usize) -> Result<(), String> {
    match edges.div_ceil(MOST_EDGES) {
        least if least > members as u64 => {
            Err(format!("{edges} edges are too many for {members} threads: use at least {least}"))
        }
        _ => Ok(()),
    }
}

/// What a graph is built as.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Shape {
    /// Whether each edge is an edge of both its vertices, or only of the first.
    pub undirected: bool,
    /// Whether the weights of the edges are kept.
    pub weighted: bool,
    /// Weights below this are *light*: they come first in a row.
    pub delta: f32,
}

/// The vertices of one member, and the edges that begin at them.
#[derive(Debug)]
pub struct Graph {
    /// Which member has which vertex.
    pub layout: Layout,
    /// The member that this part belongs to.
    pub member: usize,
    /// What it was built as.
    pub shape: Shape,
    /// Where the row of each vertex begins, and where the last one ends.
    starts: Vec<u32>,
    /// Where the heavy edges of each row begin.
    heavy: Vec<u32>,
    targets: Vec<Place>,
    weights: Vec<f32>,
    /// Edges of the member's vertices with themselves, which are in no row.
    pub loops: u64,
    /// The time in which the member waited for the edges that it brought: to read them, or to make them.
    pub bringing: Duration,
}

/// Edges on their way to one member: the number of each first vertex there, the other vertices, and
/// the weights.
#[derive(Default, Serialize, Deserialize)]
struct Edges {
    sources: Vec<u32>,
    targets: Vec<Place>,
    weights: Vec<f32>,
}

impl Edges {
    fn reserve(&mut self, more: usize, weighted: bool) {
        self.sources.reserve(more);
        self.targets.reserve(more);
        self.weights.reserve(if weighted { more } else { 0 });
    }

    fn append(&mut self, more: &mut Edges) {
        self.sources.append(&mut more.sources);
        self.targets.append(&mut more.targets);
        self.weights.append(&mut more.weights);
    }
}

impl Graph {
    /// Builds the graph of the edges that the members bring, about `count` all together. Their ends are
    /// vertices of `layout`. All members call this together.
    ///
    /// # Errors
    /// In words, to all members, if one gets more edges than it can have: which one that is, only their
    /// ends tell.
    pub fn build(
        team: &Team,
        layout: Layout,
        shape: Shape,
        count: u64,
        edges: impl IntoIterator<Item = Edge>,
    ) -> Result<Graph, String> {
        Self::build_up_to(MOST_EDGES, team, layout, shape, count, edges)
    }

    fn build_up_to(
        most: u64,
        team: &Team,
        layout: Layout,
        shape: Shape,
        count: u64,
        edges: impl IntoIterator<Item = Edge>,
    ) -> Result<Graph, String> {
        let (mut edges, mut mine, mut loops) = (edges.into_iter().fuse(), Edges::default(), 0);
        let (mut slice, mut bringing) = (Vec::with_capacity(SLICE), Duration::ZERO);
        // Members have about as many each; a vector that grows would be half empty.
        let share = count * if shape.undirected { 2 } else { 1 } / team.len() as u64;
        mine.reserve((share + share / 16) as usize, shape.weighted);
        loop {
            let mut parts: Vec<Edges> = Vec::new();
            parts.resize_with(team.len(), Edges::default);
            let mut add = |from: Place, to: Place, weight: f32| {
                let part = &mut parts[layout.owner(from)];
                part.sources.push(layout.local_of(from));
                part.targets.push(to);
                if shape.weighted {
                    part.weights.push(weight);
                }
            };
            let start = Instant::now();
            slice.extend(edges.by_ref().take(SLICE));
            bringing += start.elapsed();
            let is_last = slice.len() < SLICE;
            for (from, to, weight) in slice.drain(..) {
                if from == to {
                    // A loop is of no use to any search. It is counted where it was brought.
                    loops += 1;
                    continue;
                }
                let (from, to) = (layout.place(from), layout.place(to));
                add(from, to, weight);
                if shape.undirected {
                    add(to, from, weight);
                }
            }
            for mut part in team.all_to_all(parts) {
                mine.append(&mut part);
            }
            let state = (is_last, mine.sources.len() as u64);
            let (is_last, largest) = team.all_reduce(state, |a, b| (a.0 && b.0, a.1.max(b.1)));
            if largest > most {
                return Err(format!(
                    "more than {most} edges are at vertices of one of {} threads: use more",
                    team.len()
                ));
            }
            if is_last {
                let graph = Graph::of_edges(layout, team.index(), shape, &mine);
                return Ok(Graph { loops, bringing, ..graph });
            }
        }
    }

    /// Sorts edges into rows.
    fn of_edges(layout: Layout, member: usize, shape: Shape, edges: &Edges) -> Graph {
        let count = edges.sources.len();
        assert!(count as u64 <= MOST_EDGES, "a member has at most {MOST_EDGES} edges, got {count}");
        let is_heavy = |edge: usize| edges.weights.get(edge).is_some_and(|w| *w >= shape.delta);
        // First the lengths of the rows, then where they begin.
        let mut starts = vec![0u32; layout.local(member) + 1];
        let mut heavy = vec![0u32; layout.local(member)];
        for (edge, source) in edges.sources.iter().enumerate() {
            starts[*source as usize + 1] += 1;
            heavy[*source as usize] += u32::from(!is_heavy(edge));
        }
        for vertex in 0..heavy.len() {
            starts[vertex + 1] += starts[vertex];
            heavy[vertex] += starts[vertex];
        }
        let (mut next_light, mut next_heavy) = (starts.clone(), heavy.clone());
        let mut targets = vec![0; count];
        let mut weights = vec![0.0; edges.weights.len()];
        for (edge, source) in edges.sources.iter().enumerate() {
            let next = if is_heavy(edge) { &mut next_heavy } else { &mut next_light };
            let at = next[*source as usize] as usize;
            next[*source as usize] += 1;
            targets[at] = edges.targets[edge];
            if shape.weighted {
                weights[at] = edges.weights[edge];
            }
        }
        let (loops, bringing) = (0, Duration::ZERO);
        Graph { layout, member, shape, starts, heavy, targets, weights, loops, bringing }
    }

    /// The number of vertices here.
    #[must_use]
    pub fn vertices(&self) -> usize {
        self.heavy.len()
    }

    /// The number of edges that begin here.
    #[must_use]
    pub fn edges(&self) -> usize {
        self.targets.len()
    }

    /// The number of edges of a vertex.
    #[inline]
    #[must_use]
    pub fn degree(&self, vertex: u32) -> u32 {
        self.starts[vertex as usize + 1] - self.starts[vertex as usize]
    }

    /// The neighbours of a vertex.
    #[inline]
    #[must_use]
    pub fn neighbours(&self, vertex: u32) -> &[Place] {
        let vertex = vertex as usize;
        &self.targets[self.starts[vertex] as usize..self.starts[vertex + 1] as usize]
    }

    /// The edges of a vertex with their weights, all of them.
    #[inline]
    pub fn weighted(&self, vertex: u32) -> impl Iterator<Item = (Place, f32)> + '_ {
        let vertex = vertex as usize;
        self.row(self.starts[vertex], self.starts[vertex + 1])
    }

    /// The light edges of a vertex with their weights.
    #[inline]
    pub fn light(&self, vertex: u32) -> impl Iterator<Item = (Place, f32)> + '_ {
        self.row(self.starts[vertex as usize], self.heavy[vertex as usize])
    }

    /// The heavy edges of a vertex with their weights.
    #[inline]
    pub fn heavy(&self, vertex: u32) -> impl Iterator<Item = (Place, f32)> + '_ {
        self.row(self.heavy[vertex as usize], self.starts[vertex as usize + 1])
    }

    /// The number of heavy edges of a vertex.
    #[inline]
    #[must_use]
    pub fn heavy_degree(&self, vertex: u32) -> u32 {
        self.starts[vertex as usize + 1] - self.heavy[vertex as usize]
    }

    #[inline(always)]
    fn row(&self, start: u32, end: u32) -> impl Iterator<Item = (Place, f32)> + '_ {
        let row = start as usize..end as usize;
        self.targets[row.clone()].iter().copied().zip(self.weights[row].iter().copied())
    }

    /// The place of a vertex of this member.
    #[inline]
    #[must_use]
    pub fn place(&self, vertex: u32) -> Place {
        self.layout.place_of(self.member, vertex)
    }

    /// The number of a place here, if this member has it.
    #[inline]
    #[must_use]
    pub fn local(&self, place: Place) -> Option<u32> {
        (self.layout.owner(place) == self.member).then(|| self.layout.local_of(place))
    }
}

#[cfg(test)]
mod tests {
    use gossamer::Rack;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn more_edges_than_members_can_have_are_refused() {
        const MOST: u64 = u32::MAX as u64;
        assert_eq!(check_edges(MOST, 1), Ok(()));
        assert!(check_edges(MOST + 1, 1).unwrap_err().contains("for 1 threads: use at least 2"));
        assert_eq!(check_edges(7 * MOST, 7), Ok(()));
        assert!(check_edges(7 * MOST + 1, 7).is_err() && check_edges(u64::MAX, 1000).is_err());
    }

    /// Edges of one vertex are at one member, however many members there are.
    #[test]
    fn edges_that_one_member_cannot_have_are_an_error_of_all() {
        let member = |team: &Team, most: u64| {
            let layout = Layout::new(50, team.len()).unwrap();
            let shape = Shape { undirected: false, weighted: false, delta: 0.0 };
            let star = (1..50).filter(|_| team.index() == 1).map(|to| (0, to, 1.0));
            let built = Graph::build_up_to(most, team, layout, shape, 49, star);
            built.map(|graph| graph.edges())
        };
        let run = |most| Rack::new().threads(3).run(move || Team::run(member, most)).unwrap();
        assert_eq!(run(49), [Ok(49), Ok(0), Ok(0)]);
        for error in run(48) {
            assert!(error.unwrap_err().starts_with("more than 48 edges"));
        }
    }

    proptest! {
        /// Rows have the edges that were brought, light ones first.
        #[test]
        fn rows_are_the_edges(edges in prop::collection::vec((0u32..50, 0u32..50, 0u32..8), 0..400)) {
            let layout = Layout::new(50, 1).unwrap();
            let shape = Shape { undirected: false, weighted: true, delta: 0.5 };
            let weight = |w: u32| w as f32 / 8.0;
            let brought = Edges {
                sources: edges.iter().map(|edge| edge.0).collect(),
                targets: edges.iter().map(|edge| edge.1).collect(),
                weights: edges.iter().map(|edge| weight(edge.2)).collect(),
            };
            let graph = Graph::of_edges(layout, 0, shape, &brought);
            prop_assert_eq!(graph.edges(), edges.len());
            for vertex in 0..50 {
                let sorted = |mut row: Vec<(Place, f32)>| {
                    row.sort_by(|a, b| a.partial_cmp(b).unwrap());
                    row
                };
                let own = edges.iter().filter(|edge| edge.0 == vertex);
                let expected = sorted(own.map(|edge| (edge.1, weight(edge.2))).collect());
                prop_assert_eq!(sorted(graph.weighted(vertex).collect()), expected);
                prop_assert!(graph.light(vertex).all(|(_, w)| w < 0.5));
                prop_assert!(graph.heavy(vertex).all(|(_, w)| w >= 0.5));
                prop_assert_eq!(graph.light(vertex).count() + graph.heavy(vertex).count(),
                    graph.degree(vertex) as usize);
            }
        }
    }
}
