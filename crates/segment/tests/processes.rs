//! Segments between real processes that share memory: this program starts itself again as the other
//! hosts. It has a `main` of its own, because a started host must not run the tests.

#[cfg(not(loom))]
fn main() -> std::process::ExitCode {
    test::main()
}

#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
mod test {
    use std::env;
    use std::process::{Child, Command, ExitCode};
    use std::time::{Duration, Instant};

    use gossamer_segment::{Attached, RemoteSegment, Segment, SegmentError, Segments};
    use rustix::process::{Pid, Signal, kill_process};
    use rustix::time::{ClockId, clock_gettime};
    use transport_api::HostId;
    use transport_shm::{Leader, ShmTransport};

    /// The role of a started process; unset in the process that runs the tests.
    const ROLE: &str = "GOSSAMER_TEST_ROLE";

    /// How long anything here may take before it counts as hung.
    const DEADLINE: Duration = Duration::from_secs(60);

    const BUILD: [u8; 32] = [0x5e; 32];

    type Test = (&'static str, fn());

    const TESTS: [Test; 5] = [
        ("processes_write_and_notify_each_other", processes_write_and_notify_each_other),
        ("an_owner_that_sleeps_runs_nothing", an_owner_that_sleeps_runs_nothing),
        ("a_killed_owner_is_lost_with_its_names", a_killed_owner_is_lost_with_its_names),
        ("a_killed_writer_does_not_keep_a_revocation", a_killed_writer_does_not_keep_a_revocation),
        (
            "a_stopped_process_delays_a_revocation_and_is_named",
            a_stopped_process_delays_a_revocation_and_is_named,
        ),
    ];

    pub(super) fn main() -> ExitCode {
        let role = env::var(ROLE);
        match role.as_deref() {
            Err(_) => cases::run_here(&TESTS, |_, test| test()),
            Ok("answer") => answer(&Place::join()),
            Ok("sleep") => sleep(&Place::join()),
            Ok("serve") => serve(&Place::join()),
            Ok("hammer") => hammer(&Place::join()),
            Ok(other) => panic!("no role {other}"),
        }
    }

    /// A process among the segments of its rack, with its only thread attached.
    struct Place {
        attached: Attached,
        segments: Segments,
    }

    impl Place {
        fn of(rack: std::sync::Arc<ShmTransport>) -> Place {
            let segments = Segments::new(rack);
            let attached = segments.attach(0).expect("a thread of the rack");
            Place { attached, segments }
        }

        fn join() -> Place {
            Place::of(ShmTransport::join_leader(&BUILD).expect("to join"))
        }

        fn export(&self, name: &str, len: usize) -> Segment {
            self.segments.builder(name).len(len).export().expect("a segment")
        }

        /// Opens a segment that another process exports now or later.
        fn open(&self, name: &str) -> RemoteSegment {
            self.segments.options().timeout(DEADLINE).open(name).expect("an open segment")
        }

        /// Polls until `done`.
        fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
            let start = Instant::now();
            while !done() {
                assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
                self.attached.poll();
            }
        }
    }

    /// The other processes, which are killed and reaped even if a test fails.
    struct Children(Vec<Child>);

    impl Children {
        /// Waits until all have ended, and asserts that none has failed.
        fn end(&mut self) {
            for child in &mut self.0 {
                assert!(child.wait().expect("an exit").success());
            }
        }

        fn kill(&mut self) {
            for child in &mut self.0 {
                // Already dead is fine.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    impl Drop for Children {
        fn drop(&mut self) {
            self.kill();
        }
    }

    /// A rack of this process and one process for each role.
    fn rack_of(roles: &[&str]) -> (Place, Children) {
        let mut leader = Leader::new(roles.len() as u32 + 1).expect("a leader");
        let start = |role: &&str| {
            let mut command = Command::new(env::current_exe().expect("this program"));
            leader.spawn(command.env(ROLE, role)).expect("a child")
        };
        let children = Children(roles.iter().map(start).collect());
        (Place::of(leader.lead(1, &BUILD).expect("a rack")), children)
    }

    const ROUNDS: u64 = 1_000;

    /// Answers each question of host 0 with its number plus one, in the segment of host 0.
    fn answer(place: &Place) -> ExitCode {
        let name = format!("question-{}", place.segments.local().0);
        let question = place.export(&name, 8);
        let answers = place.open("answers");
        let own = place.segments.local().0 as usize;
        for _ in 0..ROUNDS {
            let notification = question.notified().expect("a notification");
            assert_eq!(
                (notification.from, notification.offset, notification.len),
                (HostId(0), 0, 8)
            );
            let number = question.at::<u64>(0).read().expect("a word");
            answers.fetch_add(0, 1).expect("an addition");
            answers.at::<u64>(own).write_notify(&(number + 1)).expect("a write");
        }
        // Host 0 ends last.
        let closed = place.segments.options().timeout(DEADLINE).open("closed");
        drop(closed.expect("the end"));
        ExitCode::SUCCESS
    }

    fn processes_write_and_notify_each_other() {
        let (place, mut children) = rack_of(&["answer", "answer"]);
        let answers = place.export("answers", 24);
        let questions = [place.open("question-1"), place.open("question-2")];
        assert!(questions.iter().all(RemoteSegment::is_mapped));
        for round in 0..ROUNDS {
            for question in &questions {
                question.at::<u64>(0).write_notify(&(2 * round)).expect("a write");
            }
            let mut from = [(); 2].map(|()| answers.notified().expect("a notification").from.0);
            from.sort();
            assert_eq!(from, [1, 2]);
            let words = [0, 1, 2].map(|n| answers.at::<u64>(n).read().expect("a word"));
            assert_eq!(words, [2 * round + 2, 2 * round + 1, 2 * round + 1]);
        }
        let _closed = place.export("closed", 8);
        place.until("the end of the other processes", || {
            children.0.iter_mut().all(|child| child.try_wait().expect("a child").is_some())
        });
        children.end();
    }

    /// The processor time of this process, of all its threads together.
    fn time_of_process() -> Duration {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    const WRITES: u64 = 1_000_000;

    /// Exports a segment, and sleeps between a notification at the start and one at the end.
    fn sleep(place: &Place) -> ExitCode {
        let segment = place.export("quiet", 4_096);
        let begun = segment.notified().expect("a notification");
        assert_eq!(begun.offset, 0);
        let begin = time_of_process();
        let notification = segment.notified().expect("a notification");
        let took = time_of_process() - begin;
        assert_eq!((notification.offset, notification.len, notification.missed), (8, 8, 0));
        assert_eq!(segment.at::<u64>(0).read().expect("a word"), WRITES);
        // At a tenth of a microsecond for each write it would use twice as much.
        assert!(took < Duration::from_millis(50), "it used {took:?} while others wrote");
        ExitCode::SUCCESS
    }

    fn an_owner_that_sleeps_runs_nothing() {
        let (place, mut children) = rack_of(&["sleep"]);
        let segment = place.open("quiet");
        segment.write_notify(0, &[0; 8]).expect("a write");
        for n in 1..=WRITES {
            segment.at::<u64>(0).write(&n).expect("a write");
            if n.is_multiple_of(100) {
                assert_eq!(segment.fetch_add(16, 1).expect("an addition"), n / 100 - 1);
                assert_eq!(segment.at::<u64>(0).read().expect("a read"), n);
            }
        }
        segment.write_notify(8, &[1; 8]).expect("a write");
        place.until("the owner", || children.0[0].try_wait().expect("a child").is_some());
        children.end();
    }

    /// Exports a segment until it is killed.
    fn serve(place: &Place) -> ExitCode {
        let _segment = place.export("dies", 8);
        loop {
            place.attached.park(DEADLINE);
        }
    }

    fn a_killed_owner_is_lost_with_its_names() {
        let (place, mut children) = rack_of(&["serve"]);
        let segment = place.open("dies");
        segment.write(0, &[1; 8]).expect("a write");
        segment.fence().expect("a fence");
        children.kill();
        place.until("the loss", || {
            matches!(segment.fence(), Err(SegmentError::PeerLost(HostId(1), _)))
        });
        let gone = place.segments.open("dies").map(drop);
        assert!(matches!(gone, Err(SegmentError::NotFound { .. })), "{gone:?}");
        let gone = place.segments.options().host(HostId(1)).open("dies").map(drop);
        assert!(matches!(gone, Err(SegmentError::PeerLost(HostId(1), _))), "{gone:?}");
    }

    /// Writes until it is killed.
    fn hammer(place: &Place) -> ExitCode {
        let segment = place.open("target");
        loop {
            if segment.write_block(0, &[0xff; 100_000]).is_err() {
                return ExitCode::FAILURE;
            }
            place.attached.poll();
        }
    }

    /// A process that is stopped polls nothing, and is not lost either.
    fn a_stopped_process_delays_a_revocation_and_is_named() {
        let (place, mut children) = rack_of(&["hammer"]);
        let segment = place.export("target", 100_000);
        place.until("a write", || segment.at::<u8>(99_999).read().expect("a byte") != 0);
        let pid = Pid::from_child(&children.0[0]);
        kill_process(pid, Signal::STOP).expect("a signal");
        let ended = segment.revoke();
        assert!(
            matches!(&ended, Err(SegmentError::NotQuiet { hosts, .. }) if *hosts == [HostId(1)]),
            "{ended:?}"
        );
        kill_process(pid, Signal::CONT).expect("a signal");
        // It finds its segment revoked. The answer that it owed is late, and no violation.
        assert!(!children.0[0].wait().expect("an exit").success());
    }

    fn a_killed_writer_does_not_keep_a_revocation() {
        for _ in 0..5 {
            let (place, mut children) = rack_of(&["hammer", "hammer"]);
            let segment = place.export("target", 100_000);
            let memory = segment.memory().clone();
            place.until("a write", || segment.at::<u8>(99_999).read().expect("a byte") != 0);
            // The killed process may have stopped in the middle of a write.
            children.0[0].kill().expect("a kill");
            segment.revoke().expect("a revocation");
            let own = [0x55; 100_000];
            memory.write_from(0, &own);
            let start = Instant::now();
            place.until("20 milliseconds", || start.elapsed() > Duration::from_millis(20));
            let mut now = [0; 100_000];
            memory.read_into(0, &mut now);
            assert!(now == own, "a byte was written after the revocation");
            children.kill();
        }
    }
}
