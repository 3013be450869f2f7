//! Shortest paths from one vertex: delta-stepping (Meyer and Sanders, 2003).
//!
//! Vertices are sorted into buckets by their distance, `delta` wide. The nearest bucket of any member is
//! emptied: its vertices relax their light edges, which may put vertices into the same bucket again,
//! until no member has any left; then all vertices that were in it relax their heavy edges, once. A
//! distance that concerns another member is sent there, by one exchange of a round.
//!
//! Heavy edges can also be followed from their other ends: each vertex that is still farther away looks
//! for the shortest way over its neighbours, whose distances all members get by one all_gather. That is
//! cheaper as soon as the vertices of high degree are near: the others have few edges. It needs the
//! edges that end at a vertex, so it is for undirected graphs.
//!
//! A member remembers in a small cache which distances it has sent, and does not send a longer one: hubs
//! are reached along many edges.

use std::collections::VecDeque;

use gossamer::Team;
use serde::{Deserialize, Serialize};

use crate::exchange::{self, Columns};
use crate::graph::Graph;
use crate::layout::{NOWHERE, Place};

/// A distance: `f32`, as the Graph500 specification has it, or `f64`, where whole numbers must stay whole.
pub trait Distance:
    Copy
    + Default
    + PartialOrd
    + std::ops::Add<Output = Self>
    + Serialize
    + for<'a> Deserialize<'a>
    + 'static
{
    /// Of the root.
    const ZERO: Self;
    /// Of a vertex that cannot be reached.
    const FAR: Self;
    /// The length of an edge.
    fn of(weight: f32) -> Self;
    /// How often `delta` fits in.
    fn bucket(self, delta: f32) -> usize;
}

macro_rules! distance {
    ($number:ty) => {
        impl Distance for $number {
            const ZERO: Self = 0.0;
            const FAR: Self = <$number>::INFINITY;
            #[inline(always)]
            fn of(weight: f32) -> Self {
                <$number>::from(weight)
            }
            #[inline(always)]
            fn bucket(self, delta: f32) -> usize {
                (self / <$number>::from(delta)) as usize
            }
        }
    };
}
distance!(f32);
distance!(f64);

/// What a search has found at one member.
#[derive(Debug)]
pub struct Paths<D> {
    /// The vertex before each vertex: [`NOWHERE`] of those that cannot be reached, and the root's own
    /// place of the root.
    pub parents: Vec<Place>,
    /// The distance of each vertex from the root.
    pub distances: Vec<D>,
}

/// Relaxations on their way to one member.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(bound = "D: Distance")]
struct Relaxations<D> {
    vertices: Vec<u32>,
    parents: Vec<Place>,
    distances: Vec<D>,
}

impl<D: Distance> Columns for Relaxations<D> {
    fn len(&self) -> usize {
        self.vertices.len()
    }

    fn split_off(&mut self, at: usize) -> Self {
        Relaxations {
            vertices: self.vertices.split_off(at),
            parents: self.parents.split_off(at),
            distances: self.distances.split_off(at),
        }
    }
}

/// Entries of the cache of what was sent, at most.
const CACHE: usize = 1 << 20;

struct Search<'a, D> {
    graph: &'a Graph,
    paths: Paths<D>,
    /// Vertices by distance, from the bucket `first` on: no vertex is in a nearer one. Those whose distance
    /// has become shorter meanwhile are in two of them.
    buckets: VecDeque<Vec<u32>>,
    first: usize,
    /// The distances with which each vertex has last relaxed its light and its heavy edges.
    relaxed: [Vec<D>; 2],
    /// The edges of the vertices that have not relaxed any.
    untouched: u64,
    /// Distances that were sent, each with its vertex.
    sent: Vec<(Place, D)>,
    outgoing: Vec<Relaxations<D>>,
}

impl<D: Distance> Search<'_, D> {
    /// A path to a vertex of this member is this long.
    #[inline(always)]
    fn relax(&mut self, vertex: u32, from: Place, distance: D) {
        let at = vertex as usize;
        if distance < self.paths.distances[at] {
            self.paths.distances[at] = distance;
            self.paths.parents[at] = from;
            let bucket = distance.bucket(self.graph.shape.delta).saturating_sub(self.first);
            if bucket >= self.buckets.len() {
                self.buckets.resize_with(bucket + 1, Vec::new);
            }
            self.buckets[bucket].push(vertex);
        }
    }

    /// A path to a vertex of any member is this long.
    #[inline(always)]
    fn offer(&mut self, place: Place, from: Place, distance: D) {
        if let Some(vertex) = self.graph.local(place) {
            return self.relax(vertex, from, distance);
        }
        let index = place as usize & (self.sent.len() - 1);
        let sent = &mut self.sent[index];
        if sent.0 == place && sent.1 <= distance {
            return;
        }
        *sent = (place, distance);
        let outgoing = &mut self.outgoing[self.graph.layout.owner(place)];
        outgoing.vertices.push(self.graph.layout.local_of(place));
        outgoing.parents.push(from);
        outgoing.distances.push(distance);
    }

    /// Exchanges what was offered, and returns the nearest bucket of any member from `from` on; what is
    /// before that is forgotten.
    fn exchange(&mut self, team: &Team, from: usize) -> usize {
        let empty = Relaxations { vertices: vec![], parents: vec![], distances: vec![] };
        let outgoing = std::mem::replace(&mut self.outgoing, vec![empty; team.len()]);
        exchange::to_each(team, outgoing, |part| {
            let sources = part.vertices.into_iter().zip(part.parents);
            for ((vertex, from), distance) in sources.zip(part.distances) {
                self.relax(vertex, from, distance);
            }
        });
        self.buckets.drain(..(from - self.first).min(self.buckets.len()));
        self.first = from;
        let mine = self.buckets.iter().position(|bucket| !bucket.is_empty());
        team.all_reduce(mine.map_or(usize::MAX, |at| from + at), usize::min)
    }

    /// Relaxes the light edges of the vertices of a bucket, and adds those vertices to `settled`.
    fn light(&mut self, bucket: usize, settled: &mut Vec<u32>) {
        let delta = self.graph.shape.delta;
        let at = bucket - self.first;
        let Some(vertices) = self.buckets.get_mut(at).map(std::mem::take) else { return };
        for vertex in vertices {
            let (at, distance) = (vertex as usize, self.paths.distances[vertex as usize]);
            // It is in a nearer bucket, too, or twice in this one.
            if distance.bucket(delta) != bucket || self.relaxed[0][at] == distance {
                continue;
            }
            if self.relaxed[0][at] == D::FAR {
                self.untouched -= u64::from(self.graph.degree(vertex));
            }
            self.relaxed[0][at] = distance;
            settled.push(vertex);
            let (graph, from) = (self.graph, self.graph.place(vertex));
            for (neighbour, weight) in graph.light(vertex) {
                self.offer(neighbour, from, distance + D::of(weight));
            }
        }
    }

    /// Relaxes all edges of the vertices that are farther away than a bucket, from their far ends.
    fn pull(&mut self, team: &Team, bucket: usize) {
        let (graph, delta) = (self.graph, self.graph.shape.delta);
        let distances = exchange::gather(team, &self.paths.distances, graph.layout.local(0));
        for vertex in 0..graph.vertices() as u32 {
            if self.paths.distances[vertex as usize].bucket(delta) <= bucket {
                continue;
            }
            let mut best = (D::FAR, NOWHERE);
            for (neighbour, weight) in graph.weighted(vertex) {
                let there = graph.layout.local_of(neighbour) as usize;
                let distance = distances[graph.layout.owner(neighbour)][there] + D::of(weight);
                if distance < best.0 {
                    best = (distance, neighbour);
                }
            }
            self.relax(vertex, best.1, best.0);
        }
    }

    /// Relaxes the heavy edges of these vertices, whose distances are final.
    fn heavy(&mut self, settled: &[u32]) {
        for &vertex in settled {
            let (at, distance) = (vertex as usize, self.paths.distances[vertex as usize]);
            // It is among them twice, if its distance became shorter while the bucket was emptied.
            if self.relaxed[1][at] == distance {
                continue;
            }
            self.relaxed[1][at] = distance;
            let (graph, from) = (self.graph, self.graph.place(vertex));
            for (neighbour, weight) in graph.heavy(vertex) {
                self.offer(neighbour, from, distance + D::of(weight));
            }
        }
    }
}

/// Searches from `root`: the shortest paths along weighted edges. All members call this together.
#[must_use]
pub fn search<D: Distance>(team: &Team, graph: &Graph, root: Place) -> Paths<D> {
    let vertices = graph.vertices();
    let paths = Paths { parents: vec![NOWHERE; vertices], distances: vec![D::FAR; vertices] };
    let places = if team.len() > 1 { graph.layout.places().next_power_of_two() } else { 1 };
    let empty = Relaxations { vertices: vec![], parents: vec![], distances: vec![] };
    let mut search = Search {
        graph,
        paths,
        buckets: VecDeque::new(),
        first: 0,
        relaxed: [vec![D::FAR; vertices], vec![D::FAR; vertices]],
        untouched: graph.edges() as u64,
        sent: vec![(NOWHERE, D::ZERO); places.min(CACHE)],
        outgoing: vec![empty; team.len()],
    };
    if let Some(vertex) = graph.local(root) {
        search.relax(vertex, root, D::ZERO);
    }
    let mut settled = Vec::new();
    let mut bucket = search.exchange(team, 0);
    while bucket != usize::MAX {
        let mut nearest = bucket;
        while nearest == bucket {
            search.light(bucket, &mut settled);
            nearest = search.exchange(team, bucket);
        }
        let heavy = |vertex: &u32| u64::from(graph.heavy_degree(*vertex));
        let costs = (settled.iter().map(heavy).sum::<u64>(), search.untouched);
        let (push, pull) = team.all_reduce(costs, |a, b| (a.0 + b.0, a.1 + b.1));
        if graph.shape.undirected && pull + graph.layout.vertices() < push {
            search.pull(team, bucket);
        } else {
            search.heavy(&settled);
        }
        settled.clear();
        // Sums are rounded: a heavy edge may lead into the same bucket.
        bucket = search.exchange(team, bucket);
    }
    search.paths
}
