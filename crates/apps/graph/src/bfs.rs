//! Breadth-first search, level by level, in the direction that costs less (Beamer, Asanović and
//! Patterson, 2012).
//!
//! ```text
//!   down   every vertex of the frontier visits its neighbours: those of another member are sent there,
//!          by one exchange
//!   up     every vertex that was not visited looks for a neighbour in the frontier, of which all
//!          members have a bitmap, by one all_gather
//! ```
//!
//! A level up looks at few edges if most of the graph is in the frontier: the first neighbour that is
//! found ends the search of a vertex. It needs the edges that end at a vertex, so it is for undirected
//! graphs.

use gossamer::Team;

use crate::exchange;
use crate::graph::Graph;
use crate::layout::{NOWHERE, Place};

/// Up, when the edges of the frontier are more than this part of those not visited.
const ALPHA: u64 = 14;
/// Down again, when the vertices of the frontier are fewer than this part of all.
const BETA: u64 = 24;

/// A search under way.
struct Search<'a> {
    graph: &'a Graph,
    /// The parent of each vertex of this member, from which it was reached.
    parents: Vec<Place>,
    /// The vertices that the last level has reached.
    frontier: Vec<u32>,
    /// Their edges.
    frontier_edges: u64,
}

impl Search<'_> {
    /// Reaches a vertex of this member, if it was not reached before.
    #[inline(always)]
    fn visit(&mut self, vertex: u32, from: Place) {
        let parent = &mut self.parents[vertex as usize];
        if *parent == NOWHERE {
            *parent = from;
            self.frontier_edges += u64::from(self.graph.degree(vertex));
            self.frontier.push(vertex);
        }
    }

    /// A level down. What visits another member is a pair of numbers: a vertex there, and its parent.
    fn down(&mut self, team: &Team) {
        let mut visits = vec![(Vec::<u32>::new(), Vec::<Place>::new()); team.len()];
        for vertex in std::mem::take(&mut self.frontier) {
            let from = self.graph.place(vertex);
            for &neighbour in self.graph.neighbours(vertex) {
                match self.graph.local(neighbour) {
                    Some(vertex) => self.visit(vertex, from),
                    None => {
                        let part = &mut visits[self.graph.layout.owner(neighbour)];
                        part.0.push(self.graph.layout.local_of(neighbour));
                        part.1.push(from);
                    }
                }
            }
        }
        exchange::to_each(team, visits, |(vertices, parents)| {
            for (vertex, from) in vertices.into_iter().zip(parents) {
                self.visit(vertex, from);
            }
        });
    }

    /// A level up.
    fn up(&mut self, team: &Team) {
        let mut reached = vec![0u64; self.graph.layout.places() / 64 / team.len()];
        for vertex in self.frontier.drain(..) {
            reached[vertex as usize / 64] |= 1 << (vertex % 64);
        }
        let frontier = team.all_gather(reached).concat();
        let has = |place: &Place| (frontier[*place as usize / 64] >> (place % 64)) & 1 == 1;
        for vertex in 0..self.parents.len() as u32 {
            if self.parents[vertex as usize] == NOWHERE
                && let Some(from) = self.graph.neighbours(vertex).iter().copied().find(has)
            {
                self.visit(vertex, from);
            }
        }
    }
}

/// Searches from `root`, and returns the parent of each vertex of this member: [`NOWHERE`] of those that
/// cannot be reached, and the root's own place of the root. All members call this together.
#[must_use]
pub fn search(team: &Team, graph: &Graph, root: Place) -> Vec<Place> {
    let parents = vec![NOWHERE; graph.vertices()];
    let mut search = Search { graph, parents, frontier: Vec::new(), frontier_edges: 0 };
    if let Some(vertex) = graph.local(root) {
        search.visit(vertex, root);
    }
    let (mut edges_left, mut goes_up) = (graph.edges() as u64, false);
    loop {
        edges_left -= search.frontier_edges;
        let mine = (search.frontier.len() as u64, search.frontier_edges, edges_left);
        let (vertices, edges, left) =
            team.all_reduce(mine, |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
        if vertices == 0 {
            return search.parents;
        }
        goes_up = graph.shape.undirected
            && if goes_up {
                vertices >= graph.layout.vertices() / BETA
            } else {
                edges > left / ALPHA
            };
        search.frontier_edges = 0;
        if goes_up {
            search.up(team);
        } else {
            search.down(team);
        }
    }
}
