//! The second half of a session: a process runs until it has ended and all its output is sent.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use daemon_protocol::{
    EndedBy, Ending, FromController, FromDaemon, How, OUTPUT_WINDOW, SIGKILL, Stream,
};
use gossamer_job::SigningAuthority;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument;

use crate::causes::with_causes;
use crate::connection::ConnectionError;
use crate::host::jobs::Admitted;
use crate::host::packages;
use crate::host::pipes::{Input, LAST_OUTPUT, Pump};
use crate::host::session::peer::{Session, end_requested};
use crate::host::statistics;
use crate::process::cgroup::Cgroup;
use crate::process::supervised::Supervised;
use crate::process::supervisor::{FromSupervisor, ToSupervisor};

/// How long a process may take to end when its controller is lost or a member kills the job.
const GRACE: Duration = Duration::from_millis(300);
/// The longest time to end that a controller can grant a process.
const LONGEST_GRACE: Duration = Duration::from_secs(60);

impl Session<'_> {
    /// Supervises a process, which was started with this authority, until it has ended and all its
    /// output is sent.
    pub(super) async fn supervise(
        &mut self,
        supervised: Supervised,
        admitted: &Admitted,
        mark: &str,
        cgroup: Option<Cgroup>,
        authority: Option<SigningAuthority>,
    ) {
        let Supervised {
            pid,
            supervisor,
            mut events,
            orders,
            output,
            errors,
            statistics,
            packages,
            input,
        } = supervised;
        let job = &admitted.job;
        job.has_started(pid);
        // Ends when it is dropped.
        let mut _reports = tokio::task::JoinSet::new();
        _reports.spawn(statistics::take(statistics, job.clone()));
        let packages = packages::serve(packages, job.clone(), self.daemon.clone(), authority);
        _reports.spawn(packages.in_current_span());
        tracing::info!(pid, program = self.request.program.name, "started a process");
        self.send(FromDaemon::Started { pid });

        let window = Arc::new(Semaphore::new(OUTPUT_WINDOW));
        let (end, ended) = watch::channel(false);
        let mut pumps = tokio::task::JoinSet::new();
        let pump = |stream, outgoing: &mpsc::UnboundedSender<_>| Pump {
            stream,
            job: job.clone(),
            counts: self.daemon.counts.clone(),
            outgoing: outgoing.clone(),
            window: window.clone(),
            ended: ended.clone(),
        };
        pumps.spawn(pump(Stream::Out, &self.outgoing).run(output));
        pumps.spawn(pump(Stream::Err, &self.outgoing).run(errors));
        let mut input = input.map(|pipe| Input::new(pipe, self.outgoing.clone()));

        let mut end_requests = job.end_requests();
        let mut ended_by: Option<EndedBy> = None;
        let mut was_forced = false;
        let mut force_at = None;
        let mut has_controller = true;
        let mut how = None;
        while how.is_none() {
            let stop = tokio::select! {
                message = self.incoming.recv(), if has_controller => match message {
                    Some(Ok(FromController::Signal(signal))) => {
                        let _ = orders.send(ToSupervisor::Signal(signal));
                        None
                    }
                    Some(Ok(FromController::Stop { signal, grace_ms })) => {
                        let grace = Duration::from_millis(grace_ms.into()).min(LONGEST_GRACE);
                        Some((EndedBy::Controller, signal, grace))
                    }
                    Some(Ok(message)) => {
                        let is_fine = take(message, &window, &mut input);
                        let why = || EndedBy::Daemon("unexpected message of the controller".into());
                        (!is_fine).then(|| (why(), 15, GRACE))
                    }
                    Some(Err(_)) | None => {
                        has_controller = false;
                        // The controller, which receives the output, is lost.
                        window.close();
                        input = None;
                        let error = match message {
                            Some(Err(error)) => error,
                            _ => ConnectionError::Closed,
                        };
                        let error = with_causes(&error);
                        tracing::warn!(%error, "lost the controller");
                        let why = format!("it lost the controller: {error}");
                        Some((EndedBy::Daemon(why), 15, GRACE))
                    }
                },
                by = end_requested(&mut end_requests), if ended_by.is_none() => Some((by, 15, GRACE)),
                event = events.recv() => {
                    how = Some(match event {
                        Some(FromSupervisor::Exited(code)) => How::Exited(code),
                        Some(FromSupervisor::Killed(signal)) => How::Killed(signal),
                        _ => How::Unsupervised,
                    });
                    None
                }
                () = sleep_until(force_at.unwrap_or_else(Instant::now)), if force_at.is_some() => {
                    let _ = orders.send(ToSupervisor::Kill);
                    was_forced = true;
                    force_at = None;
                    None
                }
            };
            if let Some((by, signal, grace)) = stop {
                let _ = orders.send(ToSupervisor::Signal(signal));
                was_forced |= signal == SIGKILL;
                let deadline = Instant::now() + grace;
                force_at = Some(force_at.map_or(deadline, |at: Instant| at.min(deadline)));
                ended_by.get_or_insert(by);
            }
        }
        if how == Some(How::Killed(SIGKILL)) && !was_forced {
            // Another program killed it, and the request to end arrived before the report of that.
            ended_by = None;
        }
        // Without an end, the supervisor is a process that cannot be killed.
        let _ = timeout(LAST_OUTPUT, supervisor).await;
        self.kill_leftovers(mark, cgroup).await;

        end.send_replace(true);
        let all_output = async { while pumps.join_next().await.is_some() {} };
        tokio::pin!(all_output);
        let is_all = timeout(LAST_OUTPUT, &mut all_output).await.is_ok();
        let (last_lines, panic) = job.log.last_lines_and_panic();
        let ending = Ending { how: how.unwrap_or(How::Unsupervised), ended_by, panic, last_lines };
        tracing::info!(how = %ending.how, ended_by = ending.ended_by.as_ref().map(display), "the process ended");
        if ending.ended_by.is_none() && ending.how != How::Exited(0) {
            self.daemon.counts.failed.fetch_add(1, Relaxed);
        }
        job.end_deliveries(packages::ENDED);
        job.has_ended(ending.clone());
        let _ = self.outgoing.send(FromDaemon::Ended(ending));
        if is_all || !has_controller {
            window.close();
            return;
        }
        loop {
            tokio::select! {
                () = &mut all_output => return,
                message = self.incoming.recv() => match message {
                    Some(Ok(message)) => drop(take(message, &window, &mut input)),
                    _ => {
                        window.close();
                        return;
                    }
                },
            }
        }
    }
}

/// Handles a message about output or input; false if the message is not allowed here.
fn take(message: FromController, window: &Semaphore, input: &mut Option<Input>) -> bool {
    match message {
        FromController::Printed(bytes) => {
            let room = OUTPUT_WINDOW.saturating_sub(window.available_permits());
            window.add_permits((bytes as usize).min(room));
            true
        }
        FromController::Input(bytes) => match input {
            Some(input) => input.push(bytes),
            None => true,
        },
        FromController::InputEnd => {
            *input = None;
            true
        }
        FromController::Heartbeat | FromController::Stop { .. } | FromController::Signal(_) => true,
        FromController::Program(_) | FromController::ProgramEnd | FromController::Start(_) => false,
    }
}
