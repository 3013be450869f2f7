//! [`Step`]: a task's step, as Slurm describes it in variables of the environment.

use std::env;

use thiserror::Error;

use crate::slurm::derived::PORT_CANDIDATES;
use crate::slurm::nodes::{self, NodesError};
use crate::slurm::rendezvous::{Endpoints, RENDEZVOUS};

/// What Slurm says about the step makes no sense.
#[derive(Debug, Error)]
pub enum StepError {
    /// A variable is missing or has a value that it cannot have.
    #[error("invalid {variable} {value:?} in a task of a Slurm step: expected {expected}")]
    Variable {
        /// The variable.
        variable: &'static str,
        /// Its value; empty if it is not set.
        value: String,
        /// What was expected.
        expected: &'static str,
    },
    /// The list of the step's nodes cannot be parsed.
    #[error(transparent)]
    Nodes(#[from] NodesError),
}

/// One task of a step, as Slurm describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub(crate) job: String,
    pub(crate) step: String,
    /// How many tasks the step has.
    pub(crate) tasks: u32,
    /// Which of them this process is.
    pub(crate) rank: u32,
    /// The name of this task's node.
    pub(crate) node: String,
    /// Processors for this task.
    pub(crate) cpus: u32,
    /// The names of the nodes, that of task 0 first.
    nodes: Vec<String>,
    /// Where `srun` runs.
    launcher: Option<String>,
    /// Where task 0 listens, if the user has set it.
    rendezvous: Option<String>,
}

impl Step {
    /// The step that this process is a task of; `None` if it is not, or the only task.
    ///
    /// # Errors
    /// [`StepError`], if Slurm's variables are there but make no sense.
    pub fn from_environment() -> Result<Option<Self>, StepError> {
        let variable = |name: &str| Some(env::var_os(name)?.to_string_lossy().into_owned());
        let step = Self::from_variables(variable)?;
        Ok(step.filter(|step| step.tasks > 1))
    }

    /// How many tasks the step has.
    pub fn tasks(&self) -> u32 {
        self.tasks
    }

    /// Reads the variables; `None` if this is not a task of a step. A batch script is not: it has a
    /// job and a number, and no step.
    fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, StepError> {
        let any = |names: &[&'static str]| {
            let found = names.iter().find_map(|name| Some((*name, variable(name)?)));
            found.unwrap_or((names[0], String::new()))
        };
        let (_, step) = any(&["SLURM_STEP_ID", "SLURM_STEPID"]);
        if step.is_empty() || variable("SLURM_PROCID").is_none() {
            return Ok(None);
        }
        let number = |(variable, value): (&'static str, String)| {
            let expected = "a number";
            value.parse::<u32>().map_err(|_| StepError::Variable { variable, value, expected })
        };
        let tasks = number(any(&["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"]))?;
        let rank = number(any(&["SLURM_PROCID"]))?;
        if rank >= tasks {
            return Err(StepError::Variable {
                variable: "SLURM_PROCID",
                value: rank.to_string(),
                expected: "a number below the number of tasks",
            });
        }
        let (name, job) = any(&["SLURM_JOB_ID", "SLURM_JOBID"]);
        if job.is_empty() {
            let expected = "the number of the job";
            return Err(StepError::Variable { variable: name, value: job, expected });
        }
        let (_, list) = any(&["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"]);
        let nodes = nodes::expand(&list)?;
        let node = variable("SLURMD_NODENAME").unwrap_or_else(|| format!("task{rank}"));
        let cpus = match variable("SLURM_CPUS_PER_TASK") {
            Some(value) => number(("SLURM_CPUS_PER_TASK", value))?,
            None => {
                let here = variable("SLURM_CPUS_ON_NODE").and_then(|cpus| cpus.parse().ok());
                let per_node = variable("SLURM_STEP_TASKS_PER_NODE").unwrap_or_default();
                let on_node = variable("SLURM_NODEID").and_then(|id| id.parse().ok());
                let tasks_here = on_node.and_then(|node| nth(&per_node, node)).unwrap_or(tasks);
                here.unwrap_or(1) / tasks_here.max(1)
            }
        };
        Ok(Some(Self {
            job,
            step,
            tasks,
            rank,
            node,
            cpus: cpus.max(1),
            nodes,
            launcher: variable("SLURM_LAUNCH_NODE_IPADDR").filter(|address| !address.is_empty()),
            rendezvous: variable(RENDEZVOUS).filter(|place| !place.is_empty()),
        }))
    }

    /// Where task 0 listens for the others: at one of `ports`, unless the user has set a port.
    pub(crate) fn rendezvous(&self, ports: [u16; PORT_CANDIDATES]) -> Result<Endpoints, StepError> {
        let Some(place) = &self.rendezvous else {
            // The second is right where `srun` is called on the first node, as in a batch script,
            // and names of nodes mean nothing outside Slurm. The certificate decides who answers.
            let hosts = self.nodes.first().cloned().into_iter().chain(self.launcher.clone());
            return Ok(Endpoints { hosts: hosts.collect(), ports: ports.to_vec() });
        };
        // A second colon is part of an IPv6 address.
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
            _ => (place.as_str(), None),
        };
        let wrong = || StepError::Variable {
            variable: RENDEZVOUS,
            value: place.clone(),
            expected: "HOST or HOST:PORT",
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = port.map(|port| port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong));
        let ports = port.transpose()?.map_or_else(|| ports.to_vec(), |port| vec![port]);
        if host.is_empty() { Err(wrong()) } else { Ok(Endpoints { hosts: vec![host], ports }) }
    }
}

/// The number at place `index` of `2(x3),1`, which are four numbers.
fn nth(list: &str, mut index: u32) -> Option<u32> {
    for entry in list.split(',') {
        let (number, times) = match entry.split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')')?.parse().ok()?),
            None => (entry, 1),
        };
        if index < times {
            return number.parse().ok();
        }
        index -= times;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// A task as `srun -N 4 -n 7` makes it.
    const TASK: [(&str, &str); 11] = [
        ("SLURM_JOB_ID", "12"),
        ("SLURM_STEP_ID", "3"),
        ("SLURM_STEP_NUM_TASKS", "7"),
        ("SLURM_PROCID", "6"),
        ("SLURM_NODEID", "3"),
        ("SLURM_STEP_TASKS_PER_NODE", "2(x3),1"),
        ("SLURM_CPUS_ON_NODE", "4"),
        ("SLURM_STEP_NODELIST", "n[1-4]"),
        ("SLURM_JOB_NODELIST", "n[1-9]"),
        ("SLURMD_NODENAME", "n4"),
        ("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"),
    ];

    fn read(changes: &[(&str, &str)]) -> Result<Option<Step>, StepError> {
        let all: HashMap<_, _> = TASK.iter().chain(changes).copied().collect();
        Step::from_variables(|name| {
            all.get(name).filter(|value| !value.is_empty()).map(|value| (*value).to_owned())
        })
    }

    #[test]
    fn a_task_is_read_as_slurm_describes_it() {
        let step = read(&[]).unwrap().unwrap();
        assert_eq!((step.tasks, step.rank, &*step.node, step.cpus), (7, 6, "n4", 4));
        let other = read(&[("SLURM_NODEID", "1")]).unwrap().unwrap();
        assert_eq!(other.cpus, 2, "two tasks share its node");
        let asked = read(&[("SLURM_CPUS_PER_TASK", "3")]).unwrap().unwrap();
        assert_eq!(asked.cpus, 3);
        let endpoints = step.rendezvous([1, 2, 3, 4]).unwrap();
        assert_eq!(
            (endpoints.hosts, endpoints.ports.len()),
            (vec!["n1".into(), "10.0.0.9".into()], 4)
        );
    }

    #[test]
    fn a_process_outside_a_step_is_not_a_task() {
        for missing in ["SLURM_STEP_ID", "SLURM_PROCID"] {
            assert_eq!(read(&[(missing, "")]).unwrap(), None, "{missing}");
        }
    }

    #[test]
    fn errors_name_the_variable() {
        for (variable, value) in [
            ("SLURM_PROCID", "7"),
            ("SLURM_PROCID", "x"),
            ("SLURM_STEP_NUM_TASKS", "-1"),
            ("SLURM_JOB_ID", ""),
            ("SLURM_CPUS_PER_TASK", "many"),
        ] {
            let error = read(&[(variable, value)]).unwrap_err().to_string();
            assert!(error.contains(variable), "{variable}={value}: {error}");
        }
        assert!(matches!(read(&[("SLURM_STEP_NODELIST", "n[")]), Err(StepError::Nodes(_))));
    }

    #[test]
    fn the_user_may_set_the_rendezvous() {
        for (said, host, ports) in [
            ("10.0.0.1", "10.0.0.1", vec![1, 2, 3, 4]),
            ("head:7000", "head", vec![7000]),
            ("[fd00::1]:7000", "fd00::1", vec![7000]),
            ("fd00::1", "fd00::1", vec![1, 2, 3, 4]),
        ] {
            let step = read(&[(RENDEZVOUS, said)]).unwrap().unwrap();
            let endpoints = step.rendezvous([1, 2, 3, 4]).unwrap();
            assert_eq!((&*endpoints.hosts[0], endpoints.ports), (host, ports), "{said}");
        }
        for said in [":7000", "head:0", "head:x"] {
            let step = read(&[(RENDEZVOUS, said)]).unwrap().unwrap();
            let error = step.rendezvous([1, 2, 3, 4]).unwrap_err().to_string();
            assert!(error.contains(RENDEZVOUS), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_variables_are_read_or_refused(values in proptest::collection::vec(r"[0-9(x),\[\]n-]{0,12}", TASK.len())) {
            let changes: Vec<_> =
                TASK.iter().zip(&values).map(|((name, _), value)| (*name, &**value)).collect();
            let _ = read(&changes);
        }
    }
}
