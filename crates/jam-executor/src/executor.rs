//! [`Executor`]: runs jams in a process of their own.

use std::fs::File;
use std::io::Write;
use std::mem::offset_of;
use std::time::{Duration, Instant};

use jam::{Refusal, Sendable, SignatureHash};
use jam_abi::entry::{Part, PropertyPart, Types};
use jam_abi::{Call, ContextData, SCRATCH as SCRATCH_NAME, ScratchData};
use jam_format::MAX_REPLY_BYTES;
use primitive::SharedBytes;
use primitive::sync::Ordering;

use crate::claims::{self, Cause, Claims};
use crate::code::{Code, Linked};
use crate::error::{ExecutorError, Fault};
use crate::image::Image;
use crate::layout::{CALL, REQUEST, SCRATCH, STACK, Sizes, UNIT, call, extension, request};
use crate::memory::{Memory, memory_file};
use crate::process::{NotStarted, Process, Wait, signal_of};
use crate::running::Running;
use crate::stub::labels;

/// Where the lines go that jams log.
pub(crate) type Log = dyn FnMut(&str) + Send;

/// Runs jams in a process that has a call, a scratch segment and nothing else.
///
/// It runs one call at a time and blocks the calling thread: do not call it from a fiber, but from a
/// separate thread. Dropping it ends the process.
pub struct Executor {
    sizes: Sizes,
    deadline: Duration,
    log: Option<Box<Log>>,
    image: Image,
    program: File,
    /// None after a jam has ended it: the next call starts another.
    running: Option<Running>,
    restarts: u64,
}

impl Executor {
    pub(crate) fn start(
        sizes: Sizes,
        deadline: Duration,
        log: Option<Box<Log>>,
    ) -> Result<Executor, ExecutorError> {
        let failed = |step| move |source| ExecutorError::Start { step, source };
        #[cfg(target_arch = "x86_64")]
        if !std::arch::is_x86_feature_detected!("xsave") {
            let source = std::io::Error::from(std::io::ErrorKind::Unsupported);
            return Err(failed("clear registers by XRSTOR")(source));
        }
        let image = Image::new(&sizes);
        let mut program =
            memory_file(c"gossamer-executor-program", 0).map_err(failed("make its program"))?;
        program.write_all(&image.bytes).map_err(failed("write its program"))?;
        let mut executor =
            Executor { sizes, deadline, log, image, program, running: None, restarts: 0 };
        executor.running = Some(executor.start_running()?);
        Ok(executor)
    }

    /// How often a process was started again: after a jam ended one, or filled its memory for code.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// The number of the process, if there is one.
    pub fn process_id(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.process.id())
    }

    /// Runs `jam` with `args` and `payload`, and returns its result.
    ///
    /// No policy applies: a malicious jam can only return a wrong result or error. Treat what it returns,
    /// logs or panics with as data of an unknown peer.
    ///
    /// # Errors
    /// [`ExecutorError`]. The executor can be used again after each.
    pub fn run<J: Sendable>(
        &mut self,
        jam: &J,
        args: J::Args,
        payload: &[J::Element],
    ) -> Result<J::Reply, ExecutorError> {
        let code = jam.code().map_err(|source| ExecutorError::Jam { source })?;
        let name = code.name();
        let property = <J::Property as PropertyPart>::NAME;
        if !property.is_empty() && property != SCRATCH_NAME {
            let (wanted, found) = (property.to_owned(), SCRATCH_NAME.to_owned());
            return Err(refused(name, Refusal::WrongProperty { wanted, found }));
        }
        let payload = bytes_of(payload);
        let limit = self.sizes.payload + UNIT - call::PAYLOAD;
        if payload.len() > limit {
            let (jam, bytes) = (name.to_owned(), payload.len());
            return Err(ExecutorError::Payload { jam, bytes, limit });
        }
        let linked = self.linked(code)?;
        let wanted = Types::<J::Property, J::Args, J::Element, J::Reply>::SIGNATURE;
        if linked.signature != wanted {
            let (wanted, found) = (SignatureHash(wanted), SignatureHash(linked.signature));
            return Err(refused(name, Refusal::WrongEntry { wanted, found }));
        }
        let mut reply = [0; MAX_REPLY_BYTES];
        let reply = &mut reply[..J::Reply::BYTES];
        self.call(name, &linked, bytes_of(&[args]), payload, reply)?;
        // SAFETY: as many bytes as the type has, and any bytes are a value of it.
        Ok(unsafe { reply.as_ptr().cast::<J::Reply>().read_unaligned() })
    }

    /// Writes to the scratch, for the next call. Bytes that were not written since the last call are zero.
    ///
    /// # Errors
    /// The system did not clear the scratch, or did not start a process.
    ///
    /// # Panics
    /// If the bytes are not inside the scratch.
    pub fn write_scratch(&mut self, at: usize, bytes: &[u8]) -> Result<(), ExecutorError> {
        let scratch = self.sizes.offset_of(SCRATCH);
        assert!(is_inside(at, bytes.len(), self.sizes.scratch), "outside of the scratch");
        let sizes = self.sizes;
        let running = self.running()?;
        running.clear_scratch(&sizes)?;
        running.memory.bytes.write_from(scratch + at, bytes);
        Ok(())
    }

    /// Reads the scratch as the last call left it; zeros, if that ended the process.
    ///
    /// # Errors
    /// The system did not start a process.
    ///
    /// # Panics
    /// If the bytes are not inside the scratch.
    pub fn read_scratch(&mut self, at: usize, bytes: &mut [u8]) -> Result<(), ExecutorError> {
        let scratch = self.sizes.offset_of(SCRATCH);
        assert!(is_inside(at, bytes.len(), self.sizes.scratch), "outside of the scratch");
        self.running()?.memory.bytes.read_into(scratch + at, bytes);
        Ok(())
    }

    /// The process; starts one if there is none.
    fn running(&mut self) -> Result<&mut Running, ExecutorError> {
        if self.running.is_none() {
            self.running = Some(self.start_running()?);
            self.restarts += 1;
        }
        Ok(self.running.as_mut().expect("just started"))
    }

    fn start_running(&self) -> Result<Running, ExecutorError> {
        let failed = |source| ExecutorError::Start { step: "make its memory", source };
        let memory = Memory::new(self.sizes.total()).map_err(failed)?;
        let process = self.start_process(&memory)?;
        Ok(Running { process, memory, code: Code::default(), is_scratch_used: false })
    }

    /// Starts a process with this memory.
    fn start_process(&self, memory: &Memory) -> Result<Process, ExecutorError> {
        let call = memory.bytes.slice(self.sizes.offset_of(CALL), UNIT);
        // Its setup counts its steps there.
        call.word32(call::PROGRESS).store(0, Ordering::Relaxed);
        Process::start(&self.program, &self.image, &memory.file, &call)
            .map_err(|NotStarted { step, source }| ExecutorError::Start { step, source })
    }

    /// The jam, linked in the process.
    fn linked(&mut self, code: &jam::Code) -> Result<Linked, ExecutorError> {
        let sizes = self.sizes;
        for _ in 0..2 {
            let running = self.running()?;
            if let Some(linked) = running.code.find(code.digest()) {
                return Ok(linked);
            }
            let memory = &running.memory.bytes;
            let linked = running.code.link(code.bytes(), *code.digest(), memory, &sizes);
            if let Some(linked) = linked.map_err(|refusal| refused(code.name(), refusal))? {
                return Ok(linked);
            }
            // Its memory for code is full. Another process takes over the memory, because what was
            // written to the scratch is for this call. If none starts, the full one stays.
            let mut running = self.running.take().expect("it is full");
            let taken_over = self.start_process(&running.memory).and_then(|process| {
                self.restarts += 1;
                running.take_over(process, &sizes)
            });
            self.running = Some(running);
            taken_over?;
        }
        Err(refused(code.name(), Refusal::NoRoom { bytes: code.bytes().len() as u64 }))
    }

    /// Has the process make a call, and copies its result to `reply`. If this fails otherwise than by
    /// what the jam returned, the process is ended.
    fn call(
        &mut self,
        name: &str,
        linked: &Linked,
        args: &[u8],
        payload: &[u8],
        reply: &mut [u8],
    ) -> Result<(), ExecutorError> {
        let sizes = self.sizes;
        let mut running = self.running.take().expect("`linked` has started it");
        if running.is_scratch_used {
            running.clear_scratch(&sizes)?;
        }
        let (mut limit, mut is_repeated) = (self.deadline, false);
        let ended = loop {
            write_call(&running.memory.bytes, &sizes, linked, args, payload, reply.len());
            running.is_scratch_used = true;
            let start = Instant::now();
            // Beyond the range of the clock there is no deadline.
            let ended = running.process.call(start.checked_add(limit));
            let ended = ended.map_err(|source| ExecutorError::Connection { source })?;
            if is_repeated || !matches!(ended, Wait::Exited(_)) || running.has_begun(&sizes) {
                break ended;
            }
            // This jam has not ended the process: an earlier one has left what did, or it was killed. A
            // jam that forges this runs twice, and not longer than the deadline.
            is_repeated = true;
            limit = limit.saturating_sub(start.elapsed());
            running.process = self.start_process(&running.memory)?;
            self.restarts += 1;
            running.clear_call(&sizes)?;
        };
        if matches!(ended, Wait::Deadline) {
            running.process.interrupt();
        }
        if let Some(log) = &mut self.log {
            claims::log(&running.memory.bytes, &sizes, log);
        }
        let claims = Claims::read(&running.memory.bytes, &sizes);
        match ended {
            Wait::Ended => {
                let result = running.result(&sizes, name, &claims, reply);
                running.clear_call(&sizes)?;
                self.running = Some(running);
                result
            }
            Wait::Exited(status) => {
                let (cause, fault) = claims.fault(signal_of(status), linked, &sizes);
                Err(failure(name, cause, fault, &sizes))
            }
            Wait::Deadline => {
                let (_, fault) = claims.fault(Some(libc::SIGKILL), linked, &sizes);
                Err(ExecutorError::Deadline { jam: name.to_owned(), limit: self.deadline, fault })
            }
        }
    }
}

#[cfg(all(test, not(address_sanitizer)))]
impl Executor {
    /// Ends the process, as a jam that has ended may have made it end.
    pub(crate) fn end_process(&mut self) {
        self.running.as_mut().expect("a process").process.interrupt();
    }
}

/// Writes the call, for a process that waits for one.
pub(crate) fn write_call(
    memory: &SharedBytes,
    sizes: &Sizes,
    linked: &Linked,
    args: &[u8],
    payload: &[u8],
    reply: usize,
) {
    let at = sizes.offset_of(CALL);
    let store = |at, word| memory.store(at, word, Ordering::Relaxed);
    let address = |at: usize| CALL + at as u64;
    memory.write_from(at + call::ARGS, args);
    memory.write_from(at + call::PAYLOAD, payload);
    // As `Call` has them; the assertions below compare.
    let words = [
        address(call::SCRATCH),
        address(call::ARGS),
        args.len() as u64,
        address(call::PAYLOAD),
        payload.len() as u64,
        address(call::REPLY),
        reply as u64,
        0,
        address(call::CONTEXT),
        1,
        0,
        0,
    ];
    for (index, word) in words.into_iter().enumerate() {
        store(at + call::CALL + 8 * index, word);
    }
    memory.word32(at + call::BEGAN).store(0, Ordering::Relaxed);
    store(at + call::CONTEXT, 0);
    store(at + call::CONTEXT + 8, labels().log);
    store(at + call::CONTEXT + 16, 0);
    store(at + call::SCRATCH, SCRATCH);
    store(at + call::SCRATCH + 8, sizes.scratch as u64);
    let at = sizes.offset_of(REQUEST);
    store(at + request::ENTRY, linked.entry);
    store(at + request::TEXT_START, linked.text);
    store(at + request::TEXT_END, linked.text_end);
    store(at + request::STACK_TOP, STACK + sizes.stack as u64);
    store(at + request::EXTENSIONS, extensions());
}

/// The extensions of aarch64 whose registers are set before each run, if the processor has them and the
/// system lets programs use them.
fn extensions() -> u64 {
    const RESET: u64 = 1 << extension::SME | 1 << extension::FPMR | 1 << extension::POE;
    // SAFETY: it reads a number that the system has given the process.
    let has = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    if cfg!(target_arch = "aarch64") { has & RESET } else { 0 }
}

const _: () = {
    assert!(offset_of!(Call, property) == 0 && offset_of!(Call, args) == 8);
    assert!(offset_of!(Call, args_len) == 16 && offset_of!(Call, payload) == 24);
    assert!(offset_of!(Call, payload_len) == 32 && offset_of!(Call, reply) == 40);
    assert!(offset_of!(Call, reply_capacity) == 48 && offset_of!(Call, reply_len) == 56);
    assert!(offset_of!(Call, context) == 64 && offset_of!(Call, count) == 72);
    assert!(offset_of!(Call, done) == 80 && offset_of!(Call, step) == 88);
    assert!(size_of::<Call>() == 96);
    assert!(call::CALL + size_of::<Call>() <= call::CONTEXT);
    assert!(offset_of!(ContextData, log) == 8 && size_of::<ContextData>() == 24);
    assert!(offset_of!(ScratchData, len) == 8 && size_of::<ScratchData>() == 16);
};

fn refused(jam: &str, source: Refusal) -> ExecutorError {
    ExecutorError::Refused { jam: jam.to_owned(), source }
}

fn failure(jam: &str, cause: Cause, fault: Fault, sizes: &Sizes) -> ExecutorError {
    let jam = jam.to_owned();
    match cause {
        Cause::Crash => ExecutorError::Crashed { jam, fault },
        Cause::StackOverflow => ExecutorError::StackOverflow { jam, stack: sizes.stack, fault },
        Cause::Memory => ExecutorError::Memory { jam, fault },
        Cause::SystemCall(call) => ExecutorError::Denied { jam, call, fault },
    }
}

fn is_inside(at: usize, len: usize, all: usize) -> bool {
    at.checked_add(len).is_some_and(|end| end <= all)
}

/// The bytes of values that travel as bytes.
#[allow(clippy::disallowed_methods, reason = "values of this process, as bytes")]
fn bytes_of<T: Part>(values: &[T]) -> &[u8] {
    // SAFETY: all bytes of a part are initialised: it has no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}
