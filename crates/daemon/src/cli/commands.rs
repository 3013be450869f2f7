//! The commands that call daemons.

use std::collections::BTreeMap;
use std::env;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, SystemTime};

use daemon_protocol::{Answer, JobSummary, Limits, Name, Process, Request, Role};
use gossamer_job::JobId;
use jam_format::Package;

use crate::causes::with_causes;
use crate::cli::args::{RunArgs, Who};
use crate::cli::output::{CommandError, complain, print};
use crate::cli::selection::select;
use crate::controller::call::{CallError, Caller, Next, PROCESSES};
use crate::controller::lines::Lines;
use crate::controller::printer::write;
use crate::controller::run::{self, RunOptions};
use crate::controller::{rates, tables, top};
use crate::escape::{self, Colours};
use crate::security::identity::{self, Identity};

impl Who {
    fn caller(&self) -> Result<Caller, CommandError> {
        let directory = match &self.identity {
            Some(directory) => directory.clone(),
            None => match env::home_dir() {
                Some(home) => home.join(".config/gossamer"),
                None => {
                    let text = "no home directory to look for an identity in: set its directory with --identity DIR";
                    return Err(CommandError::Other(text.into()));
                }
            },
        };
        if !directory.join(identity::CERTIFICATE).exists() {
            let directory = directory.display();
            return Err(CommandError::Other(format!(
                "no identity in {directory}: set its directory with --identity DIR or GOSSAMER_IDENTITY \
                 (`gossamer rack init` makes a rack with an administrator, `gossamer rack join` \
                 requests to join one)"
            )));
        }
        let identity = Identity::load(&directory)?;
        if matches!(identity.member.role, Role::Host | Role::Signer) {
            let (directory, role, name) =
                (directory.display(), identity.member.role, &identity.member.name);
            return Err(CommandError::Other(format!(
                "{directory} holds the identity of {role} {name}, which may not call daemons: set the \
                 directory of an administrator or viewer with --identity DIR or GOSSAMER_IDENTITY"
            )));
        }
        Ok(Caller::new(&identity)?)
    }
}

pub(crate) async fn run_job(args: RunArgs) -> Result<u8, CommandError> {
    let caller = args.who.caller()?;
    let (hosts, threads) = select(&caller, &args).await?;
    let mut words = args.program.into_iter();
    let program = words.next().unwrap_or_default();
    let options = RunOptions {
        hosts,
        processes: args.processes_per_host,
        threads,
        environment: args.env,
        directory: args.cwd,
        pin: args.pin,
        loss_bound_ms: args.loss_bound,
        limits: Limits { memory: args.memory, pids: args.pids },
        program,
        arguments: words.collect(),
    };
    let verdict = run::run(&caller, &options).await?;
    if verdict.cause.is_some() || verdict.ended_by.is_some() {
        complain(&verdict);
    }
    Ok(verdict.status)
}

/// Prints which hosts did not answer; returns the answers of the others.
fn answered<T>(answers: Vec<(Name, Result<T, CallError>)>) -> (Vec<(Name, T)>, u8) {
    let mut status = 0;
    let mut good = Vec::new();
    for (host, answer) in answers {
        match answer {
            Ok(answer) => good.push((host, answer)),
            Err(error) => {
                complain(&with_causes(&error));
                status = 1;
            }
        }
    }
    (good, status)
}

async fn ask_all(caller: &Caller, request: &Request) -> (Vec<(Name, Answer)>, u8) {
    answered(caller.ask_all(&caller.hosts(), request).await)
}

fn json<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, CommandError> {
    let text = serde_json::to_string_pretty(value);
    let text =
        text.map_err(|error| CommandError::Other(format!("cannot serialise to JSON: {error}")))?;
    Ok(format!("{}\n", escape::json(&text)).into_bytes())
}

pub(crate) async fn ps(who: Who, as_json: bool) -> Result<u8, CommandError> {
    let caller = who.caller()?;
    let take = |answer| match answer {
        Answer::Job(summary) => Some(*summary),
        _ => None,
    };
    let (jobs, status) = answered(caller.list_all(&caller.hosts(), &Request::Jobs, take).await);
    let rows = tables::jobs(&jobs);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    if as_json {
        print(&json(&rows)?)?;
    } else {
        print(tables::job_table(&rows, now.as_secs()).as_bytes())?;
    }
    Ok(status)
}

pub(crate) async fn hosts(who: Who, as_json: bool) -> Result<u8, CommandError> {
    let (answers, status) = ask_all(&who.caller()?, &Request::Describe).await;
    let reports = answers.into_iter().filter_map(|(_, answer)| match answer {
        Answer::Host(report) => Some(*report),
        _ => None,
    });
    let reports: Vec<_> = reports.collect();
    if as_json {
        print(&json(&reports)?)?;
    } else {
        print(tables::host_table(&reports).as_bytes())?;
    }
    Ok(status)
}

pub(crate) async fn top(who: Who, once: bool, as_json: bool) -> Result<u8, CommandError> {
    let caller = who.caller()?;
    if !once && !as_json {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            let text = "not a terminal: use `top --once` for a table or `top --json` for a list";
            return Err(CommandError::Other(text.into()));
        }
        top::show(&caller).await?;
        return Ok(0);
    }
    let view = top::ask(&caller).await;
    for error in &view.errors {
        complain(&with_causes(error));
    }
    if as_json {
        print(&json(&view.rows)?)?;
    } else {
        print(rates::thread_table(&view.rows).as_bytes())?;
    }
    Ok(u8::from(!view.errors.is_empty()))
}

pub(crate) async fn kill(who: Who, jobs: Vec<JobId>) -> Result<u8, CommandError> {
    let caller = who.caller()?;
    let mut status = 0;
    for job in jobs {
        let (answers, failed) = ask_all(&caller, &Request::Kill(job)).await;
        status |= failed;
        // If no host has answered, the reasons have been printed.
        let is_known = answers.iter().any(|(_, answer)| *answer == Answer::Killed(true));
        if !answers.is_empty() && !is_known {
            complain(&format!("no job {job} runs on the hosts that answered"));
            status = 1;
        }
    }
    Ok(status)
}

/// Brings a package into the processes of a job on all of its hosts.
pub(crate) async fn send_package(
    who: Who,
    job: JobId,
    path: &Path,
    bytes: Vec<u8>,
) -> Result<u8, CommandError> {
    let caller = who.caller()?;
    let in_file =
        |what: &dyn std::fmt::Display| CommandError::Other(format!("{}: {what}", path.display()));
    // The daemons verify the signature; what cannot be good is not sent.
    let package = Package::parse(&bytes).map_err(|error| in_file(&with_causes(&error)))?;
    if package.signature().map_err(|error| in_file(&with_causes(&error)))?.is_none() {
        return Err(in_file(&"the package is not signed: sign it with `gossamer jam sign`"));
    }
    let take = |answer| match answer {
        Answer::Job(summary) => Some(*summary),
        _ => None,
    };
    let listed = caller.list_all(&caller.hosts(), &Request::Jobs, take).await;
    let (listed, mut status) = answered(listed);
    let runs = |summary: &JobSummary| summary.job == job && summary.ended.is_none();
    let hosts = listed.into_iter().filter(|(_, jobs)| jobs.iter().any(runs)).map(|(host, _)| host);
    let hosts: Vec<_> = hosts.collect();
    if hosts.is_empty() {
        complain(&format!("no job {job} runs on the hosts that answered"));
        return Ok(1);
    }
    let name = escape::name(package.name()).into_owned();
    for host in hosts {
        let mut outcomes = Vec::new();
        let take = |process: Process, refused| outcomes.push((process.name(&host), refused));
        let sent = caller.send_package(&host, job, &bytes, take).await;
        let signer = match sent {
            Ok(signer) => signer,
            Err(error) => {
                complain(&with_causes(&error));
                status = 1;
                None
            }
        };
        for (process, refused) in outcomes {
            match (refused, &signer) {
                (None, Some(signer)) => {
                    let line = format!("{process}: took package {name}, signed by {signer}\n");
                    print(line.as_bytes())?;
                }
                (None, None) => print(format!("{process}: took package {name}\n").as_bytes())?,
                (Some(reason), _) => {
                    complain(&format!("{process}: refused package {name}: {reason}"));
                    status = 1;
                }
            }
        }
    }
    Ok(status)
}

pub(crate) async fn logs(who: Who, job: JobId, follow: bool) -> Result<u8, CommandError> {
    let caller = who.caller()?;
    let request = Request::Logs { job, follow };
    let mut asking = tokio::task::JoinSet::new();
    for host in caller.hosts() {
        let (caller, request) = (caller.clone(), request.clone());
        asking.spawn(async move {
            let mut begun = BTreeMap::new();
            let mut is_known = false;
            let asked = caller.ask_on(&host, &request, |answer| match answer {
                // Each process may have an incomplete line, which is kept until it is complete.
                Answer::Log(process, ..)
                    if begun.len() >= PROCESSES && !begun.contains_key(&process) =>
                {
                    Next::Refuse(format!("logs of more than {PROCESSES} processes of one job"))
                }
                Answer::Log(process, stream, bytes) => {
                    let lines =
                        begun.entry(process).or_insert_with(|| Lines::new(&process.name(&host)));
                    write(stream, &lines.take(stream, &bytes), Colours::Shown);
                    Next::More
                }
                answer => {
                    is_known = answer == Answer::LogEnd(true);
                    Next::Enough
                }
            });
            let asked = asked.await;
            let last = begun.into_values().flat_map(Lines::finish);
            last.for_each(|(stream, text)| write(stream, &text, Colours::Shown));
            asked.map(|()| is_known)
        });
    }
    let mut status = 0;
    let mut is_known = false;
    while let Some(asked) = asking.join_next().await {
        match asked.map_err(io::Error::other)? {
            Ok(is_known_there) => is_known |= is_known_there,
            Err(error) => {
                complain(&with_causes(&error));
                status = 1;
            }
        }
    }
    if !is_known {
        complain(&format!("no host that answered knows job {job}"));
        status = 1;
    }
    Ok(status)
}
