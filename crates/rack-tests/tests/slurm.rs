//! Processes with the environment of the tasks of a Slurm step, and nothing else, become one rack; and
//! without a secret nothing.
//!
//! This program starts itself again for each task, with the one test that is the task's program.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};

use gossamer::{Rack, RackError};
use gossamer_job::Secret;

/// Tells the program of the tasks that it is one.
const TASK: &str = "GOSSAMER_TEST_TASK";

#[test]
#[ignore = "this is what the tasks of the other tests run"]
fn task() {
    if env::var_os(TASK).is_none() {
        return;
    }
    let rack = Rack::from_args().unwrap();
    let found = rack.run(|| {
        let id = || (std::process::id(), gossamer::local_trustee().trustee().thread().host.0);
        let fibers: Vec<_> = gossamer::threads().map(|t| gossamer::spawn_on(t, id)).collect();
        let ids = fibers.into_iter().map(|fiber| fiber.join().unwrap());
        ids.collect::<Vec<(u32, u32)>>()
    });
    match found {
        Ok(ids) => println!("found {ids:?}."),
        Err(error) => {
            let error: RackError = error;
            eprintln!("refused: {error:?}");
            std::process::exit(3);
        }
    }
    let again = Rack::from_args().unwrap().run(|| ());
    eprintln!("again: {again:?}");
}

/// Starts task `rank` of `tasks`.
fn start(rank: u32, tasks: u32, more: &[(&str, &str)]) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "task", "--ignored", "--nocapture"]);
    let slurm: Vec<_> = env::vars().map(|(name, _)| name).collect();
    slurm.iter().filter(|name| name.starts_with("SLURM")).for_each(|name| {
        command.env_remove(name);
    });
    command
        .env_remove("GOSSAMER_SECRET")
        .env_remove("GOSSAMER_SECRET_FILE")
        .env(TASK, "1")
        // Another step for each run of these tests, so that they use ports of their own.
        .env("SLURM_JOB_ID", std::process::id().to_string())
        .env("SLURM_STEP_ID", "0")
        .env("SLURM_STEP_NUM_TASKS", tasks.to_string())
        .env("SLURM_STEP_NODELIST", "localhost")
        .env("SLURM_NODEID", "0")
        .env("SLURM_STEP_TASKS_PER_NODE", tasks.to_string())
        .env("SLURM_CPUS_ON_NODE", "1")
        .env("SLURM_PROCID", rank.to_string())
        .envs(more.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn run(tasks: u32, more: impl Fn(u32) -> Vec<(&'static str, String)>) -> Vec<(Output, u32)> {
    let children: Vec<_> = (0..tasks)
        .map(|rank| {
            let more = more(rank);
            let more: Vec<_> = more.iter().map(|(name, value)| (*name, value.as_str())).collect();
            start(rank, tasks, &more)
        })
        .collect();
    let finish = |child: Child| {
        let pid = child.id();
        (child.wait_with_output().unwrap(), pid)
    };
    children.into_iter().map(finish).collect()
}

fn secret(byte: u8) -> String {
    Secret::new([byte; 32]).to_hex()
}

#[test]
fn the_tasks_of_a_step_become_one_rack() {
    let ran = run(3, |rank| {
        // One would like more threads than the others: all have as many as those.
        let threads = if rank == 1 { "4" } else { "2" };
        vec![("GOSSAMER_SECRET", secret(1)), ("GOSSAMER_THREADS", threads.into())]
    });
    for (output, _) in &ran {
        assert!(output.status.success(), "{ran:?}");
    }
    let expected: Vec<_> =
        ran.iter().zip(0..).flat_map(|((_, pid), host)| [(*pid, host), (*pid, host)]).collect();
    let printed = String::from_utf8_lossy(&ran[0].0.stdout);
    assert!(printed.contains(&format!("found {expected:?}.")), "{expected:?}: {ran:?}");
    let errors = String::from_utf8_lossy(&ran[0].0.stderr);
    assert!(errors.contains("again: Err") && errors.contains("first rack"), "{ran:?}");
}

#[test]
fn without_a_secret_there_is_no_rack_and_the_error_says_what_to_do() {
    for (printed, more) in [
        ("export GOSSAMER_SECRET=$(gossamer secret)", vec![]),
        ("64 hexadecimal digits", vec![("GOSSAMER_SECRET", "secret".to_owned())]),
    ] {
        let ran = run(2, |_| [more.clone(), vec![("SLURM_STEP_ID", "1".to_owned())]].concat());
        for (output, _) in &ran {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{output:?}");
            assert!(errors.contains(printed), "{errors}");
        }
    }
}

#[test]
fn the_only_task_of_a_step_is_a_rack_by_itself() {
    let ran = run(1, |_| vec![("GOSSAMER_THREADS", "1".into())]);
    let printed = String::from_utf8_lossy(&ran[0].0.stdout);
    assert!(printed.contains(&format!("found [({}, 0)].", ran[0].1)), "{ran:?}");
}

#[test]
fn the_secret_may_be_in_a_private_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret");
    fs::write(&path, secret(2)).unwrap();
    let variables = |step: &str| {
        let file = ("GOSSAMER_SECRET_FILE", path.display().to_string());
        vec![file, ("SLURM_STEP_ID", step.to_owned()), ("GOSSAMER_THREADS", "1".to_owned())]
    };
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let ran = run(2, |_| variables("2"));
    assert!(ran.iter().all(|(output, _)| output.status.success()), "{ran:?}");
    let printed = String::from_utf8_lossy(&ran[0].0.stdout);
    let expected = [(ran[0].1, 0), (ran[1].1, 1)];
    assert!(printed.contains(&format!("found {expected:?}.")), "{ran:?}");

    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    for (output, _) in run(2, |_| variables("3")) {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(errors.contains("mode 0640, but 0600 or stricter is required"), "{errors}");
        assert!(errors.contains(&path.display().to_string()), "{errors}");
    }
}
