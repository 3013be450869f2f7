//! What the RPC peers share: a server in a process of its own, and a client with a number of tasks,
//! each waiting for its response before its next request. Both sides run tokio's single-threaded
//! runtime.

pub(crate) mod tarpc;
pub(crate) mod tonic;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use bench_kit::measure::cores::on_core;
use bench_kit::measure::sampling::{CaseError, Sampler, undisturbed};
use bench_kit::measure::watch::{WaitMode, Watch, schedstat};
use bench_kit::roles::{Lifeline, Role, RoleProcess};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How long a client runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(10);
/// Interval at which a server checks its lifeline.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The client's end of a connection; clones share it.
pub(crate) trait RpcClient: Clone + Send + Sized + 'static {
    /// The process that answers; it prints its address when it does.
    const SERVER: Role;

    /// Connects with the server.
    fn connect(to: SocketAddr) -> impl Future<Output = Result<Self, String>> + Send;

    /// Adds to the server's sum, and returns what it comes to.
    fn ask(&mut self, addend: u64) -> impl Future<Output = Result<u64, String>> + Send;
}

/// Answered requests per second with `outstanding` of them under way over one connection.
pub(crate) fn per_second<A: RpcClient>(
    sampler: &Sampler,
    outstanding: u64,
) -> Result<f64, CaseError> {
    let mut server = RoleProcess::spawn(A::SERVER, Some(sampler.cores.second), &[])?;
    let line = server.first_line()?;
    let address = line.parse().map_err(|_| CaseError::Failed(line))?;
    let schedstat_of_server = PathBuf::from(format!("/proc/{}/schedstat", server.id()));
    let (began, [_, before]) = (Instant::now(), schedstat(&schedstat_of_server)?);
    let ask = || runtime()?.block_on(run_client::<A>(address, sampler.time, outstanding));
    let (rate, lost) = on_core(sampler.cores.first, ask)?.map_err(CaseError::Failed)?;
    let [_, after] = schedstat(&schedstat_of_server)?;
    let lost_by_server = (after - before).as_secs_f64() / began.elapsed().as_secs_f64();
    undisturbed(lost.max(lost_by_server))?;
    Ok(rate)
}

fn runtime() -> Result<Runtime, String> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().map_err(|e| format!("no runtime: {e}"))
}

/// The rate, and the share of its time that this thread lost.
async fn run_client<A: RpcClient>(
    server: SocketAddr,
    time: Duration,
    outstanding: u64,
) -> Result<(f64, f64), String> {
    let client = A::connect(server).await?;
    let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for number in 0..outstanding {
        let (mut client, over, done) = (client.clone(), over.clone(), done.clone());
        tasks.spawn(async move {
            while !over.load(Relaxed) {
                client.ask(number).await?;
                done.fetch_add(1, Relaxed);
            }
            Ok::<_, String>(())
        });
    }
    sleep(WARM_UP).await;
    let (watch, before) = (Watch::start(WaitMode::Blocks), done.load(Relaxed));
    sleep(time).await;
    let (done, share) = (done.load(Relaxed) - before, watch.stop());
    over.store(true, SeqCst);
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|e| e.to_string())??;
    }
    Ok((done as f64 / share.wall.as_secs_f64(), share.lost))
}

/// Runs a server until its lifeline closes.
fn serve<F>(line: &Lifeline, answer: impl FnOnce(TcpListener) -> F) -> ExitCode
where
    F: Future<Output = Result<(), String>>,
{
    let serve = async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(|e| e.to_string())?;
        println!("{}", listener.local_addr().map_err(|e| e.to_string())?);
        tokio::select! {
            ended = answer(listener) => ended,
            () = cut(line) => Ok(()),
        }
    };
    match runtime().and_then(|runtime| runtime.block_on(serve)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // The case reads this line and reports it as the error.
            println!("{e}");
            ExitCode::FAILURE
        }
    }
}

async fn cut(line: &Lifeline) {
    while !line.is_closed() {
        sleep(POLL_INTERVAL).await;
    }
}
