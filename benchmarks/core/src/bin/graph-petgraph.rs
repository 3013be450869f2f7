//! `graph-petgraph SCALE ROOTS`: breadth-first search and shortest paths on the graph of the Graph500
//! benchmark by petgraph, as a program that uses it would write them: `Bfs` and `dijkstra` on a `Csr`.
//!
//! `cargo xtask bench graph` runs it beside `graph`; the lines have the names of Graph500's output block.
//! A `Csr` has no parallel edges: of several between the same vertices, the lightest stays. Rates count
//! all of them, as `graph` does.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use gossamer_graph::kronecker::{Kronecker, SEEDS, roots};
use petgraph::Directed;
use petgraph::algo::dijkstra;
use petgraph::csr::Csr;
use petgraph::visit::Bfs;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u32>());
    let (Some(Ok(scale @ 1..=24)), Some(Ok(count @ 1..))) = (words.next(), words.next()) else {
        eprintln!("usage: graph-petgraph SCALE ROOTS");
        return ExitCode::from(2);
    };
    let kronecker = Kronecker::new(scale, 16, SEEDS);
    let start = Instant::now();
    let edges: Vec<_> = kronecker.part(0..kronecker.edges()).collect();
    println!("graph_generation: {}", start.elapsed().as_secs_f64());

    let start = Instant::now();
    let mut degrees = vec![0u64; kronecker.vertices() as usize];
    let mut both = Vec::with_capacity(2 * edges.len());
    for (from, to, weight) in edges.into_iter().filter(|(from, to, _)| from != to) {
        for (from, to) in [(from, to), (to, from)] {
            degrees[from as usize] += 1;
            both.push((from as u32, to as u32, weight));
        }
    }
    both.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)));
    both.dedup_by_key(|edge| (edge.0, edge.1));
    let mut graph = match Csr::<(), f32, Directed>::from_sorted_edges(&both) {
        Ok(graph) => graph,
        Err(error) => {
            eprintln!("graph-petgraph: {error:?}");
            return ExitCode::FAILURE;
        }
    };
    drop(both);
    // It ends with the last vertex that has an edge.
    while graph.node_count() < degrees.len() {
        graph.add_node(());
    }
    println!("construction_time: {}", start.elapsed().as_secs_f64());

    let usable = roots(&kronecker).filter(|root| degrees[*root as usize] > 0);
    let usable: Vec<u32> = usable.take(count as usize).map(|root| root as u32).collect();
    let (mut bfs, mut sssp) = (0.0, 0.0);
    for &root in &usable {
        let start = Instant::now();
        let mut search = Bfs::new(&graph, root);
        let mut found = Vec::new();
        while let Some(vertex) = search.next(&graph) {
            found.push(vertex);
        }
        let time = start.elapsed().as_secs_f64();
        let edges = found.iter().map(|vertex| degrees[*vertex as usize]).sum::<u64>() as f64 / 2.0;
        bfs += time / edges;
        let start = Instant::now();
        black_box(dijkstra(&graph, root, None, |edge| *edge.weight()));
        sssp += start.elapsed().as_secs_f64() / edges;
    }
    println!("bfs  harmonic_mean_TEPS: {}", usable.len() as f64 / bfs);
    println!("sssp harmonic_mean_TEPS: {}", usable.len() as f64 / sssp);
    ExitCode::SUCCESS
}
