//! Properties of the decoder for any bytes of the control plane: the body of a fuzz target.
//!
//! Compiled for fuzzing (`cargo xtask fuzz`) and for the crate's own tests, which run it on the
//! committed corpus, `fuzz/corpus/control`.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::frame::{Decoder, encode};
use crate::{Answer, FromController, FromDaemon, Request};

/// Checks that the same messages, or the same error, are decoded however the bytes are cut, and that a
/// decoded message encodes to bytes that decode to it.
///
/// The first byte selects the kind of message, the second the size of the pieces into which the rest
/// is cut.
///
/// # Panics
/// If a check fails.
pub fn control(data: &[u8]) {
    let [kind, cut, bytes @ ..] = data else { return };
    let cut = usize::from(*cut).max(1);
    match kind % 4 {
        0 => messages::<Request>(bytes, cut),
        1 => messages::<FromController>(bytes, cut),
        2 => messages::<FromDaemon>(bytes, cut),
        _ => messages::<Answer>(bytes, cut),
    }
}

fn messages<T: Serialize + DeserializeOwned>(bytes: &[u8], cut: usize) {
    let whole = read::<T>(bytes, bytes.len().max(1));
    assert_eq!(whole, read::<T>(bytes, cut), "it matters how messages are cut");
    // A message has one encoding, which decodes to the same message.
    let again = whole.0.concat();
    assert_eq!(read::<T>(&again, cut), (whole.0, true), "a message has lost something");
}

/// The messages in `bytes`, each encoded again, and whether all of it made sense.
fn read<T: Serialize + DeserializeOwned>(bytes: &[u8], cut: usize) -> (Vec<Vec<u8>>, bool) {
    let (mut decoder, mut messages) = (Decoder::default(), Vec::new());
    for piece in bytes.chunks(cut) {
        decoder.push(piece);
        loop {
            match decoder.decode::<T>() {
                Ok(Some(message)) => messages.push(encode(&message).expect("it was one before")),
                Ok(None) => break,
                Err(_) => return (messages, false),
            }
        }
    }
    (messages, true)
}

#[cfg(test)]
mod tests {
    use fuzz_corpus::Corpus;
    use gossamer_job::{JobId, SecretPem};

    use super::*;
    use crate::{EndedBy, Ending, How, Process, Program, RunRequest, Stream};

    const TARGET: &str = "control";

    #[test]
    fn the_corpus_does_no_harm() {
        Corpus::of(TARGET).run(control);
    }

    fn run_request() -> RunRequest {
        RunRequest {
            job: JobId(1),
            host: 0,
            hosts: 2,
            processes: 1,
            threads: 1,
            program: Program { digest: [3; 32], bytes: 4096, name: "kv".into() },
            arguments: vec!["bench".into(), "--seconds".into(), "1".into()],
            environment: vec![("RUST_LOG".into(), "info".into())],
            directory: Some("/tmp".into()),
            input: true,
            limits: Default::default(),
        }
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-daemon-protocol --lib write_seeds -- --ignored"]
    fn write_seeds() {
        fn put<T: Serialize>(kind: u8, name: &str, messages: &[T]) {
            let mut bytes = vec![kind, 5];
            messages.iter().for_each(|message| bytes.extend(encode(message).expect("a message")));
            Corpus::of(TARGET).write(name, bytes);
        }
        let (job, signal) = (JobId(7), 15);
        let asks = [Request::Describe, Request::Jobs, Request::Kill(job)];
        put(0, "requests", &asks);
        put(0, "logs", &[Request::Logs { job, follow: true }]);
        put(0, "run", &[Request::Run(Box::new(run_request()))]);
        let start = FromController::Start(SecretPem("{}".into()));
        let program = FromController::Program(vec![1; 20]);
        put(1, "start", &[program, FromController::ProgramEnd, start, FromController::Heartbeat]);
        let input = FromController::Input(b"a line".to_vec());
        let stop = FromController::Stop { signal, grace_ms: 500 };
        let printed = FromController::Printed(6);
        put(1, "stop", &[input, FromController::InputEnd, printed, stop]);
        put(1, "signal", &[FromController::Signal(signal)]);
        let address = "127.0.0.1:4000".parse().expect("an address");
        let prepared = FromDaemon::Prepared { address, owns_cores: true };
        let started = FromDaemon::Started { pid: 4 };
        put(2, "prepared", &[FromDaemon::SendProgram, prepared, started, FromDaemon::Taken(6)]);
        let ended = FromDaemon::Ended(Ending {
            how: How::Killed(9),
            ended_by: Some(EndedBy::Daemon("a".into())),
            panic: Some("main.rs:1: oh".into()),
            last_lines: vec!["oh".into()],
        });
        let output = FromDaemon::Output(Stream::Err, b"oh".to_vec());
        put(2, "ended", &[output, ended, FromDaemon::Refused("no".into()), FromDaemon::Heartbeat]);
        let log = Answer::Log(Process { number: 1, of: 2 }, Stream::Out, b"a line".to_vec());
        let refused = Answer::Refused("no".into());
        put(
            3,
            "answers",
            &[Answer::Killed(true), log, Answer::LogEnd(true), refused, Answer::Heartbeat],
        );
        put(3, "jobs", &[Answer::JobsEnd]);
    }
}
