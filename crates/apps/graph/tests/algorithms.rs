//! Searches, components and ranks on random graphs, beside the simplest algorithms for them.

use gossamer::{Rack, Team};
use gossamer_graph::graph::{Graph, Shape};
use gossamer_graph::layout::{Layout, NOWHERE, Place};
use gossamer_graph::{bfs, components, pagerank, sssp};
use proptest::prelude::*;

type Edge = (u64, u64, f32);

/// What a team finds: of each vertex its distance from the first one, the vertices before it on the
/// shortest paths with and without weights, the name of its component, and its rank.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Found {
    distance: f64,
    parent: Option<u64>,
    bfs_parent: Option<u64>,
    component: u64,
    rank: f64,
}

fn member(team: &Team, (vertices, edges): (u64, Vec<Edge>)) -> Vec<(u64, Found)> {
    let layout = Layout::new(vertices, team.len()).unwrap();
    let build = |undirected| {
        let shape = Shape { undirected, weighted: true, delta: 3.0 };
        let mine = edges.iter().skip(team.index()).step_by(team.len()).copied();
        Graph::build(team, layout, shape, edges.len() as u64, mine).unwrap()
    };
    let (directed, undirected) = (build(false), build(true));
    let root = layout.place(0);
    let paths = sssp::search::<f64>(team, &directed, root);
    let parents = bfs::search(team, &directed, root);
    let labels = components::labels(team, &undirected);
    let (ranks, _) = pagerank::ranks(team, &directed, 1e-12, 1000);
    let vertex = |place: Place| (place != NOWHERE).then(|| layout.vertex(place));
    let found = |at: usize| Found {
        distance: paths.distances[at],
        parent: vertex(paths.parents[at]),
        bfs_parent: vertex(parents[at]),
        component: layout.vertex(labels[at]),
        rank: ranks[at],
    };
    (0..directed.vertices())
        .map(|at| (layout.vertex(directed.place(at as u32)), found(at)))
        .collect()
}

/// The distances from the first vertex: every edge is relaxed until nothing changes.
fn distances(vertices: u64, edges: &[Edge], length: impl Fn(f32) -> f64) -> Vec<f64> {
    let mut distances = vec![f64::INFINITY; vertices as usize];
    distances[0] = 0.0;
    for _ in 0..vertices {
        for (from, to, weight) in edges {
            let way = distances[*from as usize] + length(*weight);
            distances[*to as usize] = distances[*to as usize].min(way);
        }
    }
    distances
}

/// The rank of each vertex, by the definition, without loops.
fn ranks(vertices: u64, edges: &[Edge]) -> Vec<f64> {
    let edges = edges.iter().filter(|edge| edge.0 != edge.1);
    let count = vertices as f64;
    let mut degrees = vec![0.0; vertices as usize];
    edges.clone().for_each(|edge| degrees[edge.0 as usize] += 1.0);
    let mut ranks = vec![1.0 / count; vertices as usize];
    for _ in 0..1000 {
        let without = ranks.iter().zip(&degrees).filter(|(_, degree)| **degree == 0.0);
        let lost: f64 = without.map(|(rank, _)| rank).sum();
        let mut next = vec![0.15 / count + 0.85 * lost / count; vertices as usize];
        for (from, to, _) in edges.clone() {
            next[*to as usize] += 0.85 * ranks[*from as usize] / degrees[*from as usize];
        }
        ranks = next;
    }
    ranks
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_team_finds_what_simple_algorithms_find(
        vertices in 1u64..60,
        edges in prop::collection::vec((0u64..60, 0u64..60, 0u32..20), 0..150),
        threads in 1u32..5,
    ) {
        let edges: Vec<Edge> =
            edges.iter().map(|edge| (edge.0 % vertices, edge.1 % vertices, edge.2 as f32)).collect();
        let arguments = (vertices, edges.clone());
        let found = Rack::new().threads(threads).run(|| Team::run(member, arguments)).unwrap();
        let mut found: Vec<(u64, Found)> = found.concat();
        found.sort_by_key(|(vertex, _)| *vertex);
        prop_assert!(found.iter().map(|(vertex, _)| *vertex).eq(0..vertices));

        let lengths = distances(vertices, &edges, f64::from);
        let hops = distances(vertices, &edges, |_| 1.0);
        let both: Vec<Edge> = edges.iter().flat_map(|&(a, b, w)| [(a, b, w), (b, a, w)]).collect();
        let expected = ranks(vertices, &edges);
        let mut names = (0..vertices).collect::<Vec<_>>();
        for _ in 0..vertices {
            for (from, to, _) in &both {
                names[*to as usize] = names[*to as usize].min(names[*from as usize]);
            }
        }
        for (vertex, found) in &found {
            let at = *vertex as usize;
            prop_assert_eq!(found.distance, lengths[at]);
            if at > 0 && found.distance.is_finite() {
                let before = found.parent.unwrap();
                prop_assert!(edges.iter().any(|edge| (edge.0, edge.1) == (before, *vertex)
                    && lengths[before as usize] + f64::from(edge.2) == lengths[at]));
            }
            prop_assert_eq!(found.bfs_parent.is_some(), hops[at].is_finite());
            if let Some(before) = found.bfs_parent.filter(|_| at > 0) {
                prop_assert!(edges.iter().any(|edge| (edge.0, edge.1) == (before, *vertex)));
                prop_assert_eq!(hops[before as usize] + 1.0, hops[at]);
            }
            prop_assert!((found.rank - expected[at]).abs() < 1e-9, "{} {}", found.rank, expected[at]);
        }
        // Components have the same name exactly where they are the same.
        for (one, a) in &found {
            for (other, b) in &found {
                let same = names[*one as usize] == names[*other as usize];
                prop_assert_eq!(a.component == b.component, same);
            }
        }
    }
}
