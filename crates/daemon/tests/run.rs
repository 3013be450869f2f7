//! Jobs that end well: what they are given, what they print, and who can see them.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use common::{Rack, Ran, entries, eventually, finish, read_until, send};
use gossamer_job::JobDescription;

#[test]
fn output_comes_back_with_the_names_of_the_hosts() {
    let rack = Rack::new(&["a", "b"]);
    let ran = rack.script("a,b", "echo out; echo err >&2; printf unfinished");
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let mut out: Vec<_> = ran.out.lines().collect();
    out.sort();
    assert_eq!(out, ["[a] out", "[a] unfinished", "[b] out", "[b] unfinished"]);
    let mut err: Vec<_> = ran.err.lines().collect();
    err.sort();
    assert_eq!(err, ["[a] err", "[b] err"]);
    rack.assert_nothing_left();
}

#[test]
fn the_program_runs_on_its_hosts_with_its_arguments() {
    let rack = Rack::new(&["a"]);
    let ran = Ran::from(
        rack.gossamer(&["run", "--hosts", "a", "--env", "GREETING=hello world", "--cwd", "/usr"])
            .args(["--", "sh", "-c", "echo $GREETING; pwd; echo $0 $1; echo $GOSSAMER_IDENTITY"])
            .args(["name", "--hosts"])
            .output()
            .unwrap(),
    );
    assert_eq!(ran.out, "[a] hello world\n[a] /usr\n[a] name --hosts\n[a] \n", "{ran:?}");
    let ran = rack.script("a", "pwd; ls; touch something");
    let work = format!("[a] {}", rack.state(0).join("work").display());
    assert!(ran.out.starts_with(&work) && ran.out.lines().count() == 1, "{ran:?}");
    eventually("the directory is removed", || {
        (entries(&rack.state(0).join("work")) == 0).then_some(())
    });
    assert_eq!(entries(&rack.state(0).join("jobs")), 0);
}

#[test]
fn input_goes_to_host_0_in_any_amount() {
    let rack = Rack::new(&["a", "b"]);
    let mut child =
        rack.run("a,b", &["sh", "-c", "cat | wc -c"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for _ in 0..100 {
        input.write_all(&[b'x'; 50_000]).unwrap();
    }
    drop(input);
    let ran = finish(child);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let mut out: Vec<_> = ran.out.lines().collect();
    out.sort();
    assert_eq!(out, ["[a] 5000000", "[b] 0"]);
}

#[test]
fn output_comes_in_any_amount() {
    let rack = Rack::new(&["a"]);
    let ran = rack.script("a", "i=0; while [ $i -lt 30000 ]; do echo $i-$(($i * 7))-0123456789012345678901234567890123456789; i=$(($i + 1)); done");
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    assert_eq!(ran.out.lines().count(), 30_000);
    assert!(ran.out.ends_with("[a] 29999-209993-0123456789012345678901234567890123456789\n"));
}

#[test]
fn signals_are_forwarded() {
    let rack = Rack::new(&["a", "b"]);
    let script = "trap 'echo got it; exit 0' USR1; echo ready; while :; do sleep 0.01; done";
    let mut child = rack.start("a,b", script);
    let mut out = child.stdout.take().unwrap();
    read_until(&mut out, "ready\n[");
    read_until(&mut out, "ready\n");
    send(child.id(), "USR1");
    let printed = read_until(&mut out, "got it\n[") + &read_until(&mut out, "got it\n");
    assert!(printed.contains("a] got it") && printed.contains("b] got it"), "{printed}");
    assert_eq!(finish(child).status, Some(0));
}

/// Where nothing is to be read, the command waits and does not look again and again.
#[test]
fn a_command_without_input_costs_nothing() {
    let rack = Rack::new(&["a"]);
    let job = || rack.run("a", &["sh", "-c", "echo ready; exec sleep 600"]);
    let mut closed = Command::new("sh");
    closed.args(["-c", "exec \"$0\" \"$@\" <&-"]).arg(job().get_program()).args(job().get_args());
    closed.envs(job().get_envs().filter_map(|(name, value)| Some((name, value?))));
    closed.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut nothing, mut silent) = (job(), job());
    for (input, command) in [
        ("nothing", nothing.stdin(Stdio::null())),
        ("silent", silent.stdin(Stdio::piped())),
        ("closed", &mut closed),
    ] {
        let mut child = command.spawn().unwrap();
        read_until(child.stdout.as_mut().unwrap(), "ready");
        let before = ticks(child.id());
        std::thread::sleep(std::time::Duration::from_secs(1));
        let used = ticks(child.id()) - before;
        send(child.id(), "TERM");
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.status, Some(143), "{input}: {ran:?}");
        assert!(used < 50, "{input}: {used} hundredths of a second of work in one second");
    }
}

/// The work of a process so far, in hundredths of a second.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<u64> = rest.split(' ').skip(11).take(2).map(|f| f.parse().unwrap()).collect();
    fields.iter().sum()
}

#[test]
fn a_program_is_sent_to_whom_it_is_missing_and_only_once() {
    let rack = Rack::new(&["a", "b"]);
    let program = rack.path("program");
    fs::write(&program, "#!/bin/sh\necho one\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = Ran::from(rack.run("a", &[&program]).output().unwrap());
    assert_eq!((ran.status, ran.out.as_str()), (Some(0), "[a] one\n"), "{ran:?}");
    let store = rack.state(0).join("store");
    let digest = blake3::hash(&fs::read(&program).unwrap()).to_hex().to_string();
    assert_eq!(fs::read(store.join(&digest)).unwrap(), fs::read(&program).unwrap());
    assert_eq!(fs::metadata(&store).unwrap().permissions().mode() & 0o777, 0o700);
    // The file keeps its inode, so it was not sent again.
    let inode = |path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let before = inode(store.join(&digest));
    let ran = Ran::from(rack.run("a,b", &[&program]).output().unwrap());
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert_eq!(inode(store.join(&digest)), before);
    assert!(rack.state(1).join("store").join(&digest).exists());
    // A program that was changed is another program.
    fs::write(&program, "#!/bin/sh\necho two\n").unwrap();
    let ran = Ran::from(rack.run("a", &[&program]).output().unwrap());
    assert_eq!(ran.out, "[a] two\n");
    assert_eq!(entries(&store), 2);
}

#[test]
fn a_program_is_sent_once_to_a_host_that_runs_it_several_times() {
    let rack = Rack::new(&["a"]);
    let program = rack.path("program");
    let text = format!("#!/bin/sh\n# {}\n", "x".repeat(1 << 20));
    fs::write(&program, &text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let run = ["run", "--hosts", "a", "--processes-per-host", "4", "--", &program];
    let ran = Ran::from(rack.gossamer(&run).output().unwrap());
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let metrics = rack.metrics(0);
    let bytes = format!("\ngossamer_program_bytes_total {}\n", text.len());
    assert!(metrics.contains(&bytes), "{metrics}");
}

/// Run as a process of the job below, and of no use otherwise.
#[test]
#[ignore = "run by the_description_of_a_job_reaches_its_processes"]
fn a_process_of_a_job() {
    let job = JobDescription::from_environment().unwrap().expect("started by a daemon");
    assert_eq!(JobDescription::from_environment().unwrap().unwrap(), job, "it can be read again");
    let listener = JobDescription::listener_from_environment().unwrap().unwrap();
    let me = &job.hosts[job.host as usize];
    assert_eq!(listener.local_addr().unwrap(), me.address);
    assert!(job.key.0.contains("PRIVATE KEY"));
    let secret = job.key.0.lines().nth(1).unwrap();
    for place in ["/proc/self/environ", "/proc/self/cmdline"] {
        assert!(!fs::read_to_string(place).unwrap().contains(secret), "the key is in {place}");
    }
    let fd = std::env::var("GOSSAMER_JOB_FD").unwrap();
    let path = format!("/proc/self/fd/{fd}");
    let changed = fs::File::options().write(true).open(path).and_then(|mut f| f.write_all(b"x"));
    assert!(changed.is_err(), "the description is sealed");
    let names: Vec<_> = job.hosts.iter().map(|host| host.name.as_str()).collect();
    println!(
        "rack {} host {} {} of {names:?} threads {} bound {} pin {}",
        job.rack, job.host, me.name, me.threads, job.loss_bound_ms, job.pin
    );
}

#[test]
fn the_description_of_a_job_reaches_its_processes() {
    let rack = Rack::new(&["a", "b"]);
    let this = std::env::current_exe().unwrap();
    let ran = Ran::from(
        rack.gossamer(&["run", "--hosts", "b,a", "--threads", "3", "--loss-bound", "700", "--pin"])
            .arg(this)
            .args(["--ignored", "--exact", "a_process_of_a_job", "--nocapture"])
            .output()
            .unwrap(),
    );
    assert_eq!(ran.status, Some(0), "{ran:?}");
    for line in [
        "[b] rack testrack host 0 b of [\"b\", \"a\"] threads 3 bound 700 pin true",
        "[a] rack testrack host 1 a of [\"b\", \"a\"] threads 3 bound 700 pin true",
    ] {
        assert!(ran.out.contains(line), "{ran:?}");
    }
    for number in 0..2 {
        let log = fs::read_to_string(rack.log_file(number)).unwrap();
        assert!(!log.contains("PRIVATE"), "no key is in the log");
    }
}

/// The hosts of a job are those that answer, and its threads those that they have processors for.
#[test]
fn without_hosts_and_threads_a_job_takes_what_is_there() {
    let mut rack = Rack::new(&["a", "b", "c"]);
    rack.end_daemon(1, "TERM");
    let this = std::env::current_exe().unwrap();
    let says = |arguments: &[&str]| {
        let mut run = rack.gossamer(&["run"]);
        run.args(arguments).arg(&this);
        run.args(["--ignored", "--exact", "a_process_of_a_job", "--nocapture"]);
        Ran::from(run.output().unwrap())
    };
    let processors = std::thread::available_parallelism().unwrap().get();
    let ran = says(&[]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    for (number, host) in ["a", "c"].into_iter().enumerate() {
        let line = format!(
            "[{host}] rack testrack host {number} {host} of [\"a\", \"c\"] threads {processors} "
        );
        assert!(ran.out.contains(&line), "{ran:?}");
    }
    assert!(ran.err.contains("b: cannot connect to its daemon"), "{ran:?}");
    let chosen = format!("gossamer: running on a,c with --threads {processors}\n");
    assert!(ran.err.contains(&chosen), "{ran:?}");

    let ran = says(&["--processes-per-host", &processors.to_string()]);
    assert!(ran.out.contains("threads 1 "), "they share the processors: {ran:?}");
    let ran = says(&["--hosts", "c"]);
    assert!(ran.out.contains(&format!("of [\"c\"] threads {processors} ")), "{ran:?}");
    let ran = says(&["--threads", "3"]);
    assert!(ran.out.contains("of [\"a\", \"c\"] threads 3 "), "{ran:?}");
    let ran = says(&["--hosts", "b,c"]);
    assert_eq!(ran.status, Some(125), "a host that was named has to answer: {ran:?}");

    for number in [0, 2] {
        rack.end_daemon(number, "TERM");
    }
    let ran = Ran::from(rack.gossamer(&["run", "true"]).output().unwrap());
    assert_eq!(ran.status, Some(125), "{ran:?}");
    assert!(ran.err.contains("no host of the rack answers"), "{ran:?}");
}

#[test]
fn threads_are_pinned_where_a_job_has_the_cores_for_itself() {
    let rack = Rack::with(&["a"], "exclusive_cores = true\n");
    let this = std::env::current_exe().unwrap();
    let says = |threads: usize| {
        let mut run = rack.gossamer(&["run", "--hosts", "a", "--threads", &threads.to_string()]);
        run.arg(&this).args(["--ignored", "--exact", "a_process_of_a_job", "--nocapture"]);
        Ran::from(run.output().unwrap()).out
    };
    let cores = std::thread::available_parallelism().unwrap().get();
    assert!(says(cores).contains("pin true"), "{}", says(cores));
    assert!(
        says(cores + 1).contains("pin false"),
        "they have not a core each: {}",
        says(cores + 1)
    );
    let other = rack.run("a", &["sleep", "600"]).spawn().unwrap();
    eventually("the other job runs", || {
        Ran::from(rack.gossamer(&["ps"]).output().unwrap()).out.contains("sleep").then_some(())
    });
    assert!(says(1).contains("pin false"), "they share them with another job: {}", says(1));
    send(other.id(), "TERM");
    finish(other);
}

#[test]
fn jobs_run_side_by_side_and_can_be_listed_read_and_killed() {
    let rack = Rack::new(&["a", "b"]);
    rack.add_viewer();
    let as_viewer = |mut command: Command| {
        command.env("GOSSAMER_IDENTITY", rack.path("rack/viewer"));
        Ran::from(command.output().unwrap())
    };
    let script = "echo this is one; while :; do sleep 0.1; done";
    let (one, two) =
        (rack.start("a,b", script), rack.start("b,a", "echo this is two; cat; sleep 1000"));
    let jobs = eventually("both jobs run on both hosts", || {
        let ran = as_viewer(rack.gossamer(&["ps", "--json"]));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let jobs: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let jobs = jobs.as_array().unwrap().clone();
        let runs = |job: &serde_json::Value| {
            ["a", "b"].iter().all(|host| job["on"][host]["pid"].is_number())
        };
        (jobs.len() == 2 && jobs.iter().all(runs)).then_some(jobs)
    });
    let number = |host: &str| {
        let of = jobs.iter().find(|job| job["on"][host]["host"] == 0).unwrap();
        of["job"].as_str().unwrap().to_owned()
    };
    let (first, second) = (number("a"), number("b"));
    assert_eq!(jobs[0]["owner"], "admin");
    let logs = eventually("both hosts have printed something", || {
        let ran = as_viewer(rack.gossamer(&["logs", &first]));
        (ran.out.lines().count() == 2).then_some(ran)
    });
    assert_eq!(logs.status, Some(0), "{logs:?}");
    let unknown = as_viewer(rack.gossamer(&["logs", &"7".repeat(32)]));
    assert_eq!(unknown.status, Some(1), "{unknown:?}");
    assert!(unknown.err.contains("no host that answered knows job"), "{unknown:?}");
    assert!(logs.out.contains("[a] this is one\n") && logs.out.contains("[b] this is one\n"));

    let killed = Ran::from(rack.gossamer(&["kill", &first]).output().unwrap());
    assert_eq!(killed.status, Some(0), "{killed:?}");
    let one = finish(one);
    assert_eq!(one.status, Some(143), "{one:?}");
    assert!(one.err.contains("was ended by admin (admin)"), "{one:?}");
    let table = as_viewer(rack.gossamer(&["ps"]));
    let line = table.out.lines().find(|line| line.starts_with(&second)).unwrap();
    assert!(line.ends_with("runs"), "the other job does not notice: {table:?}");
    let killed = Ran::from(rack.gossamer(&["kill", &first]).output().unwrap());
    assert_eq!(killed.status, Some(1), "it does not run any more");

    assert_eq!(Ran::from(rack.gossamer(&["kill", &second]).output().unwrap()).status, Some(0));
    assert_eq!(finish(two).status, Some(143));
    rack.assert_nothing_left();
}

#[test]
fn jobs_are_listed_however_long_their_last_lines_are() {
    let rack = Rack::new(&["a"]);
    let script = "{ echo \"thread 'main' panicked at src/main.rs:\"; \
                  head -c 16000 /dev/zero | tr '\\0' '\\377'; } >&2; exit 101";
    let run = ["run", "--hosts", "a", "--processes-per-host", "16", "--", "sh", "-c", script];
    let ran = rack.gossamer(&run).output().unwrap();
    assert_eq!(ran.status.code(), Some(101), "{ran:?}");
    let ran = Ran::from(rack.gossamer(&["ps", "--json"]).output().unwrap());
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let jobs: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(jobs[0]["on"].as_object().unwrap().len(), 16, "{jobs}");
}

#[test]
fn a_host_starts_more_processes_than_it_lets_strangers_wait() {
    let rack = Rack::new(&["a"]);
    let run = ["run", "--hosts", "a", "--processes-per-host", "200", "--", "/bin/true"];
    let ran = Ran::from(rack.gossamer(&run).output().unwrap());
    assert_eq!(ran.status, Some(0), "{ran:?}");
}

#[test]
fn hosts_are_described() {
    let mut rack = Rack::new(&["a", "b"]);
    let ran = Ran::from(rack.gossamer(&["hosts", "--json"]).output().unwrap());
    let hosts: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&hosts[0]["name"], &hosts[1]["name"]), (&"a".into(), &"b".into()), "{ran:?}");
    assert!(hosts[0]["topology"]["cpus"].as_u64().unwrap() > 0);
    rack.end_daemon(1, "TERM");
    let ran = Ran::from(rack.gossamer(&["hosts"]).output().unwrap());
    assert!(ran.out.starts_with("HOST") && ran.out.lines().count() == 2, "{ran:?}");
    assert!(ran.err.contains("b: cannot connect to its daemon"), "{ran:?}");
    assert_eq!(ran.status, Some(1));
}

#[test]
fn what_cannot_run_says_why() {
    let rack = Rack::new(&["a", "b"]);
    let ran = rack.script("a,nowhere", "true");
    assert_eq!(ran.status, Some(125));
    assert!(ran.err.contains("unknown host nowhere"), "{ran:?}");
    let ran = Ran::from(rack.run("a", &["no-such-program"]).output().unwrap());
    assert_eq!(ran.status, Some(125));
    assert!(ran.err.contains("no-such-program"), "{ran:?}");
    let ran = Ran::from(
        rack.gossamer(&["run", "--hosts", "a,b", "--cwd", "/nowhere", "true"]).output().unwrap(),
    );
    assert_eq!(ran.status, Some(125));
    assert!(ran.err.contains("cannot start the program"), "{ran:?}");
    assert!(ran.err.contains("/nowhere"), "it says what is missing: {ran:?}");
    let program = rack.path("nonsense");
    fs::write(&program, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = Ran::from(rack.run("a", &[&program]).output().unwrap());
    assert_eq!(ran.status, Some(127));
    assert!(ran.err.contains("cannot start"), "{ran:?}");
    rack.assert_nothing_left();
}

#[test]
fn what_cannot_be_signed_is_no_host() {
    let place = tempfile::tempdir().unwrap();
    let gossamer = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gossamer"));
        Ran::from(command.current_dir(place.path()).args(arguments).output().unwrap())
    };
    let made = gossamer(&["rack", "init", "--name", "r", "--dir", "."]);
    assert_eq!(made.status, Some(0), "{made:?}");
    fs::write(place.path().join("request"), "nothing of the kind").unwrap();
    let sign = ["rack", "sign", "--dir", ".", "--name", "b", "--role", "host", "--address", "b"];
    let signed = gossamer(&[&sign[..], &["request"]].concat());
    assert_eq!(signed.status, Some(125), "{signed:?}");
    let hosts = fs::read_to_string(place.path().join("admin/hosts.toml")).unwrap();
    assert!(!hosts.contains('b'), "{hosts}");
}

#[test]
fn a_host_that_is_signed_at_another_address_is_reported() {
    let rack = Rack::new(&["a"]);
    let (dir, request) = (rack.path("rack"), rack.path("request"));
    let asked =
        rack.gossamer(&["rack", "join", "--identity", &rack.path("other")]).output().unwrap();
    assert!(asked.status.success(), "{asked:?}");
    fs::write(&request, asked.stdout).unwrap();
    let sign = ["rack", "sign", "--dir", &dir, "--name", "a", "--role", "host", "--address"];
    let ran = Ran::from(rack.gossamer(&sign).args(["10.1.2.3", &request]).output().unwrap());
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.err.contains("the address of a was 127.0.0.1:"), "{ran:?}");
}

#[test]
fn an_argument_that_is_no_text_is_a_mistake_and_no_panic() {
    let argument = <OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff");
    for program in [env!("CARGO_BIN_EXE_gossamer"), env!("CARGO_BIN_EXE_gossamerd")] {
        let ran = Ran::from(Command::new(program).arg(argument).output().unwrap());
        assert_eq!(ran.status, Some(2), "{ran:?}");
    }
}

#[test]
fn completions_and_the_manual_are_printed() {
    let gossamer = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_gossamer")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(gossamer(&["completions", "bash"]).contains("complete -F _gossamer"));
    let manual = gossamer(&["man"]);
    assert!(manual.starts_with(".ie") || manual.contains(".TH gossamer"), "{manual}");
    assert!(manual.contains("RACK SIGN") || manual.contains("rack sign"), "{manual}");
}

#[test]
fn what_the_daemon_logs_of_a_job_names_the_job_and_the_host() {
    let rack = Rack::new(&["a", "b"]);
    let ran = rack.script("a,b", "exit 0");
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let ps = rack.gossamer(&["ps", "--json"]).output().unwrap();
    let jobs: serde_json::Value = serde_json::from_slice(&ps.stdout).unwrap();
    let job = format!("job={}", jobs[0]["job"].as_str().unwrap());
    for (number, host) in [(0, "host=a"), (1, "host=b")] {
        let log = fs::read_to_string(rack.log_file(number)).unwrap();
        for event in ["started", "ended"] {
            let mut lines = log.lines().filter(|line| line.contains(event));
            let names_both = |line: &str| line.contains(&job) && line.contains(host);
            assert!(lines.clone().count() > 0 && lines.all(names_both), "{event}: {log}");
        }
        assert!(log.lines().all(|line| line.contains(host)), "{log}");
    }
}
