//! Requests and responses over iceoryx2 between this process and a server process.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use std::{env, fs};

use bench_kit::harness::{Case, Unit};
use bench_kit::measure::cores::on_core;
use bench_kit::measure::sampling::{CaseError, Reading, Sampler, undisturbed};
use bench_kit::measure::watch::{WaitMode, Watch, schedstat};
use bench_kit::roles::{Lifeline, Role, RoleProcess};
use iceoryx2::config::Config;
use iceoryx2::node::{Node, NodeBuilder};
use iceoryx2::pending_response::PendingResponse;
use iceoryx2::port::client::Client;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::request_response::PortFactory;
use tempfile::TempDir;

/// Requests in flight when the rate is measured.
const WINDOW: usize = 64;
const FOLDER: &str = "BENCH_ICEORYX";
const SERVICE: &str = "core-bench/addition";
/// Requests between two clock readings.
const BURST: u32 = 256;
/// Empty polls after which a client checks whether its server still runs.
const EMPTY: u32 = 1 << 20;

type Shm = ipc::Service;
type Service = PortFactory<Shm, u64, (), u64, ()>;
type Pending = PendingResponse<Shm, u64, (), u64, ()>;
type Requester = Client<Shm, u64, (), u64, ()>;

/// The process that answers.
pub(crate) const SERVER: Role = Role { name: "iceoryx2-server", run: serve };

/// Half round trip of an 8-byte request with an 8-byte response.
pub(crate) fn latency() -> Case {
    Case::new("iceoryx2/request-response, 8 bytes", Unit::Nanoseconds, |sampler| {
        let per_second = sample(sampler, 1)?;
        Ok(Reading::of(1e9 / per_second / 2.0))
    })
}

/// Rate of 8-byte requests, each answered, with 64 in flight.
pub(crate) fn rate() -> Case {
    Case::new("iceoryx2/request-response, 64 in flight", Unit::Mops, |sampler| {
        Ok(Reading::of(sample(sampler, WINDOW)? / 1e6))
    })
}

fn failed(what: &str) -> impl Fn(String) -> CaseError {
    move |e| CaseError::Failed(format!("iceoryx2 cannot {what}: {e}"))
}

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

/// Answered requests per second with `window` of them in flight.
fn sample(sampler: &Sampler, window: usize) -> Result<f64, CaseError> {
    let files = Files(TempDir::with_prefix("core-bench-iceoryx2-")?);
    let folder = files.0.path();
    let variables = [(FOLDER, folder.into())];
    let mut server = RoleProcess::spawn(SERVER, Some(sampler.cores.second), &variables)?;
    let state = server.first_line()?;
    if state != "ready" {
        return Err(failed("serve")(state));
    }
    let schedstat_of_server = PathBuf::from(format!("/proc/{}/schedstat", server.id()));
    let (began, [_, before]) = (Instant::now(), schedstat(&schedstat_of_server)?);
    let (rate, lost) = on_core(sampler.cores.first, || requests(sampler, folder, window))??;
    let [_, after] = schedstat(&schedstat_of_server)?;
    let lost_by_server = (after - before).as_secs_f64() / began.elapsed().as_secs_f64();
    undisturbed(lost.max(lost_by_server))?;
    Ok(rate)
}

/// Returns the rate, and the share of its time for which this thread did not run.
fn requests(sampler: &Sampler, folder: &Path, window: usize) -> Result<(f64, f64), CaseError> {
    let (_node, service) = open(folder).map_err(failed("open its service"))?;
    let client = service.client_builder().create().map_err(text);
    let client = client.map_err(failed("create a client"))?;
    let mut flight = Vec::with_capacity(window);
    burst(&client, &mut flight, window)?;
    let (watch, start, mut done) = (Watch::start(WaitMode::Polls), Instant::now(), 0u64);
    while start.elapsed() < sampler.time {
        done += burst(&client, &mut flight, window)?;
    }
    let share = watch.stop();
    Ok((done as f64 / share.wall.as_secs_f64(), share.lost))
}

/// Sends at least [`BURST`] requests, `window` at a time; returns their number.
fn burst(client: &Requester, flight: &mut Vec<Pending>, window: usize) -> Result<u64, CaseError> {
    let mut done = 0;
    while done < u64::from(BURST) {
        for number in 0..window as u64 {
            let sent = client.send_copy(number).map_err(text);
            flight.push(sent.map_err(failed("send a request"))?);
        }
        for pending in flight.drain(..) {
            let mut empty = 0u32;
            while pending.receive().map_err(text).map_err(failed("receive"))?.is_none() {
                std::hint::spin_loop();
                empty += 1;
                if empty.is_multiple_of(EMPTY) && !pending.is_connected() {
                    return Err(failed("receive")("its server has exited".to_owned()));
                }
            }
            done += 1;
        }
    }
    Ok(done)
}

/// The files of one sample: a folder, and in `/dev/shm` those that start with its name.
struct Files(TempDir);

impl Drop for Files {
    // The library leaves one file behind on purpose, for later nodes.
    fn drop(&mut self) {
        let Some(prefix) = self.0.path().file_name() else { return };
        for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if entry.file_name().as_bytes().starts_with(prefix.as_bytes()) {
                // A file that stays behind does not affect later samples: each has its own names.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// A node and the service, whose files are all below `folder` or named after it.
fn open(folder: &Path) -> Result<(Node<Shm>, Service), String> {
    set_log_level(LogLevel::Fatal);
    let mut config = Config::default();
    let nameless = "a temporary folder must have a name in UTF-8";
    let root = folder.to_str().ok_or(nameless)?;
    let name = folder.file_name().and_then(|name| name.to_str()).ok_or(nameless)?;
    config.global.set_root_path(&root.try_into().map_err(text)?);
    config.global.prefix = name.try_into().map_err(text)?;
    let node = NodeBuilder::new().config(&config).create::<Shm>().map_err(text)?;
    let service = node
        .service_builder(&SERVICE.try_into().map_err(text)?)
        .request_response::<u64, u64>()
        .max_active_requests_per_client(WINDOW)
        .max_loaned_requests(1)
        .open_or_create()
        .map_err(text)?;
    Ok((node, service))
}

/// Serves requests until the lifeline closes, adding up their values.
fn serve(line: Lifeline) -> ExitCode {
    match answer(&line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // The case reads this line and reports it as the error.
            println!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn answer(line: &Lifeline) -> Result<(), String> {
    let folder = env::var_os(FOLDER).ok_or(format!("{FOLDER} is not set"))?;
    let (_node, service) = open(Path::new(&folder))?;
    let server = service.server_builder().create().map_err(text)?;
    println!("ready");
    let mut sum = 0u64;
    while !line.is_closed() {
        while let Some(request) = server.receive().map_err(text)? {
            sum = sum.wrapping_add(*request.payload());
            // A client that exited needs no response, and its exit is not an error here.
            let _ = request.send_copy(sum);
        }
        std::hint::spin_loop();
    }
    Ok(())
}
