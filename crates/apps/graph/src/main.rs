//! `graph`: the Graph500 benchmark, and questions about graphs in files, on a rack.
//!
//! With more than one host the rack starts this program again, with the same arguments, for each
//! further host. Everything that prints or reads therefore runs inside the rack's `main`, which runs
//! once.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use gossamer::{Chain, Rack};
use gossamer_graph::graph500::{self, Settings};
use gossamer_graph::questions::{self, Question};
use gossamer_graph::read::{self, Format};
use gossamer_plot::file::ResultsFile;

#[derive(Parser)]
#[command(version, about = "Graph500, and questions about graphs in files, on a rack")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    rack: RackArgs,
}

/// The rack that a command runs on.
#[derive(Args, Clone)]
struct RackArgs {
    /// Number of hosts: processes, each with its own heap and statics
    #[arg(long, global = true, default_value_t = 1, env = "GOSSAMER_HOSTS", value_parser = clap::value_parser!(u32).range(1..))]
    hosts: u32,
    /// Threads per host [default: the processors, divided among the hosts]
    #[arg(long, global = true, env = "GOSSAMER_THREADS", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the Graph500 benchmark, and print its output block
    Graph500(Graph500),
    /// Run the Graph500 benchmark at scale 18 with few roots, and print a table
    Bench {
        #[command(flatten)]
        args: Graph500,
        /// Draw the rates of all searches into this file, as SVG
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
    },
    /// Find a shortest path in a file's graph, by the weights of its edges if they have any
    Path {
        #[command(flatten)]
        file: GraphFile,
        /// Where the path begins
        #[arg(long)]
        from: u64,
        /// Where the path ends
        #[arg(long)]
        to: u64,
        /// Count edges instead of adding their weights
        #[arg(long)]
        unweighted: bool,
    },
    /// Print the vertices, edges and degrees of a file's graph
    Stats(GraphFile),
    /// Count the connected components of a file's graph, whatever the direction of its edges
    Components(GraphFile),
    /// Print the vertices of a file's graph with the highest PageRank
    Pagerank {
        #[command(flatten)]
        file: GraphFile,
        /// How many vertices
        #[arg(long, default_value_t = 10)]
        top: usize,
    },
}

#[derive(Args, Clone)]
struct GraphFile {
    /// The file, plain or compressed by gzip. It is read twice, so it cannot be a pipe
    ///
    /// Vertices are the numbers from 0 (snap) or 1 to the largest one: those that no edge names are
    /// there, too. Edges have a direction, except in a symmetric matrix, in a file that begins with
    /// `# Undirected`, and with --undirected. Weights are 32-bit floating-point numbers, in which whole
    /// numbers are exact up to 2^24.
    file: String,
    /// Its format [default: as its name says, .mtx or .gr, and snap for all others]
    #[arg(long)]
    format: Option<Format>,
    /// Edges have no direction, whatever the file says
    #[arg(long)]
    undirected: bool,
}

impl GraphFile {
    /// Surveys the file, and asks.
    fn ask(&self, question: Question, weighted: bool) -> Result<String, String> {
        let format = self.format.unwrap_or_else(|| Format::of(&self.file));
        let mut input = read::survey(&self.file, format, weighted)
            .map_err(|error| Chain(&error).to_string())?;
        input.undirected |= self.undirected;
        questions::ask(input, question)
    }
}

#[derive(Args, Clone)]
struct Graph500 {
    /// The graph has 2^SCALE vertices
    #[arg(long, default_value_t = 18, value_parser = clap::value_parser!(u32).range(1..=30))]
    scale: u32,
    /// Edges per vertex
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1024))]
    edge_factor: u64,
    /// Searches from different vertices [default: 64, of `bench` 16]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    roots: Option<u32>,
    /// Width of a bucket of the shortest paths, from 0.001 to 1: weights are from 0 to 1
    #[arg(long, default_value_t = 0.05, value_parser = delta)]
    delta: f32,
    /// Do not validate the results
    #[arg(long)]
    skip_validation: bool,
}

/// Reads the width of a bucket. Narrower ones would only take memory.
fn delta(text: &str) -> Result<f32, String> {
    let delta: f32 = text.parse().map_err(|error| format!("{error}"))?;
    match (0.001..=1.0).contains(&delta) {
        true => Ok(delta),
        false => Err(format!("expected a number from 0.001 to 1, got {delta}")),
    }
}

impl Graph500 {
    fn settings(&self, roots: u32) -> Settings {
        Settings {
            scale: self.scale,
            edge_factor: self.edge_factor,
            roots: self.roots.unwrap_or(roots) as usize,
            delta: self.delta,
            validate: !self.skip_validation,
        }
    }
}

impl Command {
    /// Runs inside the rack, and returns what is to be printed.
    fn run(self) -> Result<String, String> {
        match self {
            Command::Graph500(args) => Ok(graph500::run(args.settings(64))?.block()),
            Command::Bench { args, plot } => bench(args.settings(16), plot),
            Command::Path { file, from, to, unweighted } => {
                file.ask(Question::Path { from, to }, !unweighted)
            }
            Command::Stats(file) => file.ask(Question::Statistics, false),
            Command::Components(file) => file.ask(Question::Components, false),
            Command::Pagerank { file, top } => file.ask(Question::Ranks { top }, false),
        }
    }
}

/// Runs the benchmark, and draws its plot if one is asked for.
fn bench(settings: Settings, plot: Option<PathBuf>) -> Result<String, String> {
    let plot = plot.map(ResultsFile::open).transpose()?;
    let results = graph500::run(settings)?;
    if let Some(file) = plot {
        file.write(&results.plot())?;
    }
    Ok(results.table())
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let threads = cli.rack.threads.unwrap_or_else(|| (processors / cli.rack.hosts).max(1));
    let rack = Rack::new().hosts(cli.rack.hosts).threads(threads);
    let error = match rack.run(|| cli.command.run()) {
        Ok(Ok(text)) => match io::stdout().write_all(text.as_bytes()) {
            // Who has read enough of it closes the pipe.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                format!("cannot write the results: {error}")
            }
            _ => return ExitCode::SUCCESS,
        },
        Ok(Err(error)) => error,
        // With its causes.
        Err(error) => format!("{error:?}"),
    };
    eprintln!("graph: {error}");
    ExitCode::FAILURE
}
