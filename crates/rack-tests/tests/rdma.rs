//! The behaviours of a rack that depend on its transport, over RDMA, and a rack of two processes that
//! each have a device of their own. It needs devices: `cargo xtask rdma-test` runs it in a guest that has some.

mod common;

use std::env;
use std::process::{Command, Stdio};

use behaviours::behaviours_of_transports;
use gossamer::Rack;
use gossamer_job::Secret;

macro_rules! over_rdma {
    ($($module:ident: $name:ident;)*) => {
        $(
            #[test]
            #[ignore = "needs an RDMA device: cargo xtask rdma-test"]
            fn $name() {
                common::behaves(common::Kind::Rdma, stringify!($name), behaviours::$module::$name);
            }
        )*
    };
}
behaviours_of_transports!(over_rdma);

/// Tells the program of the tasks that it is one.
const TASK: &str = "GOSSAMER_TEST_TASK";

#[test]
#[ignore = "this is what the tasks of the next test run"]
fn task() {
    if env::var_os(TASK).is_none() {
        return;
    }
    let sum = Rack::from_args().unwrap().run(|| {
        let counter = gossamer::entrust(0u64);
        let add = |counter: gossamer::Trust<u64>| (0..100).for_each(|_| counter.apply(|n| *n += 1));
        let fibers: Vec<_> = gossamer::trustees()
            .map(|thread| gossamer::spawn_on_with(thread, add, counter.clone()))
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        counter.apply(|n| *n)
    });
    println!("counted {}.", sum.unwrap());
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn processes_with_a_device_each_become_one_rack() {
    let devices = common::rdma::devices();
    let start = |rank: usize| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "task", "--ignored", "--nocapture"]);
        command
            .env(TASK, "1")
            .env("GOSSAMER_SECRET", Secret::new([1; 32]).to_hex())
            .env("GOSSAMER_THREADS", "2")
            .env("GOSSAMER_RDMA_DEVICE", &devices[rank % devices.len()])
            .env("SLURM_JOB_ID", std::process::id().to_string())
            .env("SLURM_STEP_ID", "0")
            .env("SLURM_STEP_NUM_TASKS", "2")
            .env("SLURM_STEP_NODELIST", "localhost")
            .env("SLURM_NODEID", "0")
            .env("SLURM_STEP_TASKS_PER_NODE", "2")
            .env("SLURM_PROCID", rank.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let tasks: Vec<_> = (0..2).map(start).collect();
    let ran: Vec<_> = tasks.into_iter().map(|task| task.wait_with_output().unwrap()).collect();
    assert!(ran.iter().all(|output| output.status.success()), "{ran:?}");
    let printed = String::from_utf8_lossy(&ran[0].stdout);
    assert!(printed.contains("counted 400."), "{ran:?}");
    for output in &ran {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(errors.matches("neither encrypted nor authenticated").count(), 1, "{ran:?}");
    }
}
