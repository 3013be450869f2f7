//! What the remote procedure calls share: a server in a process of its own, and a client of which so
//! many tasks ask, each waiting for its answer before it asks again. Both sides run tokio's runtime
//! of one thread.

pub(crate) mod tarpc;
pub(crate) mod tonic;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

use bench_kit::measure::cores::on_core;
use bench_kit::measure::room::{CaseError, Room, undisturbed};
use bench_kit::measure::watch::{Manner, Watch, schedstat};
use bench_kit::roles::{LifeLine, Player, Role};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How long a client asks before it is measured.
const WARM_UP: Duration = Duration::from_millis(10);
/// How often a server looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(20);

/// The client's end of a connection; clones share it.
pub(crate) trait Ask: Clone + Send + Sized + 'static {
    /// The process that answers; it prints its address when it does.
    const SERVER: Role;

    /// Connects with the server.
    fn connect(to: SocketAddr) -> impl Future<Output = Result<Self, String>> + Send;

    /// Adds to the server's sum, and returns what it comes to.
    fn ask(&mut self, addend: u64) -> impl Future<Output = Result<u64, String>> + Send;
}

/// Answered requests per second with `outstanding` of them under way over one connection.
pub(crate) fn per_second<A: Ask>(room: &Room, outstanding: u64) -> Result<f64, CaseError> {
    let mut server = Player::start(A::SERVER, Some(room.cores.second), &[])?;
    let line = server.first_line()?;
    let address = line.parse().map_err(|_| CaseError::Failed(line))?;
    let schedstat_of_server = PathBuf::from(format!("/proc/{}/schedstat", server.id()));
    let (began, [_, before]) = (Instant::now(), schedstat(&schedstat_of_server)?);
    let ask = || runtime()?.block_on(asking::<A>(address, room.time, outstanding));
    let (rate, lost) = on_core(room.cores.first, ask)?.map_err(CaseError::Failed)?;
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
async fn asking<A: Ask>(
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
    let (watch, before) = (Watch::start(Manner::Blocks), done.load(Relaxed));
    sleep(time).await;
    let (done, stint) = (done.load(Relaxed) - before, watch.stop());
    over.store(true, SeqCst);
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|e| e.to_string())??;
    }
    Ok((done as f64 / stint.wall.as_secs_f64(), stint.lost))
}

/// Plays a server until its life line is cut.
fn serve<F>(line: &LifeLine, answer: impl FnOnce(TcpListener) -> F) -> ExitCode
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
            // The case waits for a line, and shows what is in it.
            println!("{e}");
            ExitCode::FAILURE
        }
    }
}

async fn cut(line: &LifeLine) {
    while !line.cut() {
        sleep(LOOK).await;
    }
}
