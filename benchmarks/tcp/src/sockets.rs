//! The lower bound of the system: 8 bytes written to a socket and 8 read from it, by two threads
//! that busy-poll. Nothing on sockets can be faster.

use std::hint::spin_loop;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;

use bench_kit::measure::cores::on_core;
use bench_kit::measure::sampling::{CaseError, Sampler, undisturbed};
use bench_kit::measure::watch::{WaitMode, Watch};
use bench_kit::roles::{Lifeline, Role, RoleProcess};

/// The process that sends back what it gets.
pub(crate) const SERVER: Role = Role { name: "sockets-server", run: serve };

/// Round trips between two looks at the clock.
const BURST: u64 = 64;

/// Round trips per second.
pub(crate) fn round_trips(sampler: &Sampler) -> Result<f64, CaseError> {
    let mut server = RoleProcess::spawn(SERVER, Some(sampler.cores.second), &[])?;
    let line = server.first_line()?;
    let address: SocketAddr = line.parse().map_err(|_| CaseError::Failed(line))?;
    let (rate, lost) = on_core(sampler.cores.first, || ask(address, sampler))??;
    undisturbed(lost)?;
    Ok(rate)
}

/// The rate, and the share of its time that this thread lost.
fn ask(address: SocketAddr, sampler: &Sampler) -> io::Result<(f64, f64)> {
    let mut socket = polled(TcpStream::connect(address)?)?;
    let mut word = [7; 8];
    let mut burst = || {
        for _ in 0..BURST {
            write(&mut socket, &word)?;
            if !read(&mut socket, &mut word)? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok::<_, io::Error>(())
    };
    burst()?;
    let (watch, mut done) = (Watch::start(WaitMode::Polls), 0);
    let start = std::time::Instant::now();
    while start.elapsed() < sampler.time {
        burst()?;
        done += BURST;
    }
    let share = watch.stop();
    Ok((done as f64 / share.wall.as_secs_f64(), share.lost))
}

/// Ends when its client does.
fn serve(_: Lifeline) -> ExitCode {
    let answer = || -> io::Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        println!("{}", listener.local_addr()?);
        let mut socket = polled(listener.accept()?.0)?;
        let mut word = [0; 8];
        while read(&mut socket, &mut word)? {
            write(&mut socket, &word)?;
        }
        Ok(())
    };
    match answer() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // The case reads this line and reports it as the error.
            println!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn polled(socket: TcpStream) -> io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Writes a word: the socket has room for it, since no more than one is ever under way.
fn write(socket: &mut TcpStream, word: &[u8; 8]) -> io::Result<()> {
    socket.write_all(word)
}

/// Reads a word; false at the end of the stream.
fn read(socket: &mut TcpStream, word: &mut [u8; 8]) -> io::Result<bool> {
    let mut have = 0;
    while have < word.len() {
        match socket.read(&mut word[have..]) {
            Ok(0) => return Ok(false),
            Ok(count) => have += count,
            Err(e) if e.kind() == ErrorKind::WouldBlock => spin_loop(),
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}
