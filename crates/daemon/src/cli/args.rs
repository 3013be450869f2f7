//! The command lines of `gossamer` and `gossamerd`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use daemon_protocol::{Name, Role};
use gossamer_job::JobId;
use jam_format::Machine;

/// Run programs on the hosts of a rack
#[derive(Debug, Parser)]
#[command(name = "gossamer", version, propagate_version = true)]
pub(crate) struct Gossamer {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Run this host's daemon: it starts processes for holders of an administrator's certificate
#[derive(Debug, Parser)]
#[command(name = "gossamerd", version)]
pub(crate) struct Gossamerd {
    #[command(flatten)]
    pub(crate) daemon: DaemonArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make, join and administer racks
    #[command(subcommand)]
    Rack(RackCommand),
    /// Run a program on hosts of the rack as one job
    Run(RunArgs),
    /// List jobs
    Ps {
        #[command(flatten)]
        who: Who,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End jobs on all their hosts
    Kill {
        #[command(flatten)]
        who: Who,
        /// The jobs, as `ps` lists them
        #[arg(required = true)]
        jobs: Vec<JobId>,
    },
    /// Print a job's recent output
    Logs {
        #[command(flatten)]
        who: Who,
        /// The job, as `ps` lists it
        job: JobId,
        /// Follow the output until the job ends
        #[arg(short, long)]
        follow: bool,
    },
    /// Show the cores, memory and RDMA devices of the hosts
    Hosts {
        #[command(flatten)]
        who: Who,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the activity of the threads of all jobs, until q is pressed
    Top {
        #[command(flatten)]
        who: Who,
        /// Print one table and exit
        #[arg(long)]
        once: bool,
        /// Print one list as JSON and exit
        #[arg(long)]
        json: bool,
    },
    /// Print a new secret, with which the tasks of a Slurm job authenticate each other: run
    /// `export GOSSAMER_SECRET=$(gossamer secret)` before `srun`
    Secret {
        /// Write it to this file with mode 0600 instead, for GOSSAMER_SECRET_FILE; an existing file is
        /// replaced
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
    },
    /// Build, sign and send packages of jams and rieds, and show what is in one
    #[command(subcommand)]
    Jam(JamCommand),
    /// Install gossamer and gossamerd on the machines of a rack over ssh, and run a program there
    Deploy(DeployArgs),
    /// Run this host's daemon (the same as gossamerd)
    Daemon(DaemonArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JamCommand {
    /// Build the package of a folder: of jams, each a file NAME.rs or NAME.c, and of rieds, each a
    /// crate NAME/Cargo.toml
    Build {
        /// The folder
        folder: PathBuf,
        /// Build for this machine, x86-64 or aarch64, instead of this one; several times for a
        /// package for several machines, of which each receiver takes its own
        #[arg(long = "machine", value_name = "MACHINE", value_parser = machine)]
        machines: Vec<Machine>,
        /// Build for this target of rustc instead of this machine's
        #[arg(long, conflicts_with = "machines")]
        target: Option<String>,
        /// Use these processor features, by rustc's names; receivers without them reject the jams.
        /// Each of several machines gets those that it has
        #[arg(long, value_delimiter = ',')]
        features: Vec<String>,
        /// Write the package to this file instead of FOLDER.jampkg in the current directory
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Show the elements of a package: exports, imports, sizes, digests, signatures
    Inspect {
        /// Show the code of each jam as well, by the system's objdump or llvm-objdump
        #[arg(long)]
        disassemble: bool,
        /// Verify the signature for the rack of the member whose directory this is; fails if no signer
        /// of the rack has signed the package. Without it, the signature is shown as the package has it
        #[arg(long, value_name = "DIR")]
        identity: Option<PathBuf>,
        /// The package
        file: PathBuf,
    },
    /// Sign a package as a signer of the rack: the rack's jobs then run its jams
    Sign {
        /// The directory of the signer's certificate and key
        #[arg(long, env = "GOSSAMER_SIGNER", value_name = "DIR")]
        identity: PathBuf,
        /// Sign it for this job only, as `ps` lists it
        #[arg(long)]
        job: Option<JobId>,
        /// Write the signed package to this file instead of PACKAGE itself
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// The package
        package: PathBuf,
    },
    /// Bring a signed package into a running job: its processes then run its jams
    Send {
        #[command(flatten)]
        who: Who,
        /// The job, as `ps` lists it
        job: JobId,
        /// The signed package
        package: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RackCommand {
    /// Make a rack: its authority, an administrator and, if --host is given, its first host
    Init {
        /// The name of the rack
        #[arg(long)]
        name: Name,
        /// The directory for the authority and the identities: DIR/ca, DIR/admin, DIR/HOST
        #[arg(long)]
        dir: PathBuf,
        /// The name of the first host; without it, every host makes its own key and joins
        #[arg(long, requires = "address")]
        host: Option<Name>,
        /// The address at which its daemon will listen
        #[arg(long, value_name = "ADDRESS[:PORT]", requires = "host", value_parser = address)]
        address: Option<String>,
    },
    /// Request to join a rack: make a key here and print the request to sign; with --card, store the
    /// signed answer beside the key
    Join {
        /// The directory of the new identity
        #[arg(long, env = "GOSSAMER_IDENTITY", value_name = "DIR")]
        identity: PathBuf,
        /// The signed answer to the request; - reads standard input
        #[arg(long, value_name = "FILE")]
        card: Option<PathBuf>,
    },
    /// Sign the request of a new host or person, and print the card for it
    Sign {
        /// The directory of the rack, as given to `rack init`
        #[arg(long)]
        dir: PathBuf,
        /// The name of the new member
        #[arg(long)]
        name: Name,
        /// The role of the new member
        #[arg(long, value_parser = roles())]
        role: Role,
        /// The address at which the daemon of a new host will listen
        #[arg(long, value_name = "ADDRESS[:PORT]", required_if_eq("role", "host"))]
        #[arg(value_parser = address)]
        address: Option<String>,
        /// The days for which the certificate is valid
        #[arg(long, default_value_t = 365)]
        days: u32,
        /// The request; - reads standard input
        request: PathBuf,
    },
    /// Revoke the certificates of a host or person, and write the list of all revoked certificates
    Revoke {
        /// The directory of the rack, as given to `rack init`
        #[arg(long)]
        dir: PathBuf,
        /// The host or person
        name: Name,
    },
}

/// The identity with which to call the daemons.
#[derive(Debug, Args)]
pub(crate) struct Who {
    /// The directory of the certificate, key and hosts [default: ~/.config/gossamer]
    #[arg(long, env = "GOSSAMER_IDENTITY", value_name = "DIR")]
    pub(crate) identity: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) who: Who,
    /// Hosts to run on; the closure passed to `Rack::run` runs on the first [default: all that answer, by name]
    #[arg(long, value_delimiter = ',', num_args = 1)]
    pub(crate) hosts: Option<Vec<Name>>,
    /// Processes on each host; they share its memory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) processes_per_host: u32,
    /// Threads of each process [default: as many as its share of the processors of a host; where
    /// hosts differ, of the host with the fewest]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: Option<u32>,
    /// Set an environment variable of the program
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// The working directory on each host [default: an empty directory, removed afterwards]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Pin threads to cores even on hosts that run other jobs
    #[arg(long)]
    pub(crate) pin: bool,
    /// Limit the memory of each process and its children: bytes, or as 500M or 4G; needs daemons with
    /// cgroups
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory: Option<u64>,
    /// Limit the number of processes and threads of each process and its children; needs daemons
    /// with cgroups
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) pids: Option<u64>,
    /// Declare a peer lost after MS milliseconds without traffic
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..))]
    pub(crate) loss_bound: u64,
    /// The program and its arguments; it is sent to hosts that do not have it
    #[arg(required = true, trailing_var_arg = true)]
    pub(crate) program: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DeployArgs {
    #[command(flatten)]
    pub(crate) options: gossamer_deploy::Options,
    /// Directory of the gossamer and gossamerd to install [default: that of this command]
    #[arg(long, value_name = "DIR")]
    pub(crate) programs: Option<PathBuf>,
    /// The program, a file of this machine, and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    pub(crate) program: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/gossamer/gossamer.toml")]
    pub(crate) config: PathBuf,
    /// Allow to run as root, and to run all jobs as root
    #[arg(long)]
    pub(crate) allow_root: bool,
}

/// Bytes, as a number with K, M, G or T after it for powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "invalid size {text:?}: expected a number of bytes, or one followed by K, M, G or T"
        )
    };
    let units = [("K", 10), ("M", 20), ("G", 30), ("T", 40)];
    let unit = units.into_iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, bits)));
    let (number, bits) = unit.unwrap_or((text, 0));
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << bits).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!("invalid variable {text:?}: expected NAME=VALUE")),
    }
}

/// Parses a role, and lists all of them in the help.
fn roles() -> impl TypedValueParser<Value = Role> {
    let listed = Role::ALL.map(|role| {
        PossibleValue::new(role.word()).help(match role {
            Role::Admin => "May run and kill jobs, and read all information",
            Role::Viewer => "May read all information, and change nothing",
            Role::Host => "A daemon: it answers requests and may send none",
            Role::Signer => {
                "May sign packages of code, and call no daemon: its key can be kept offline"
            }
        })
    });
    PossibleValuesParser::new(listed)
        .map(|word| Role::of(&word).expect("only words of roles are possible"))
}

fn machine(text: &str) -> Result<Machine, String> {
    let machine = Machine::ALL.into_iter().find(|machine| machine.name() == text.replace('-', "_"));
    machine.ok_or_else(|| format!("unknown machine {text:?}: expected x86-64 or aarch64"))
}

/// An address at which a daemon listens: a name or an IP address, and a port if there is one.
fn address(text: &str) -> Result<String, String> {
    let is_ip = |host: &str| host.parse::<IpAddr>().is_ok();
    let is_name = |host: &str| {
        let labels = || host.trim_end_matches('.').split('.');
        let is_label = |label: &str| {
            let is_inside = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            !label.is_empty() && label.len() <= 63 && label.chars().all(is_inside)
        };
        // A name whose last part is a number would be a malformed IPv4 address.
        labels().all(is_label)
            && labels().next_back().is_some_and(|last| last.parse::<u64>().is_err())
    };
    let is_valid = text.parse::<SocketAddr>().is_ok()
        || is_ip(text)
        || is_name(text)
        || text.rsplit_once(':').is_some_and(|(host, port)| {
            port.parse::<u16>().is_ok_and(|port| port > 0) && is_name(host)
        });
    if is_valid {
        return Ok(text.to_owned());
    }
    Err("expected a name or an IP address, and a port from 1 to 65535 if any".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_two_spellings() {
        for (text, expected) in [
            ("x86-64", Ok(Machine::X86_64)),
            ("x86_64", Ok(Machine::X86_64)),
            ("aarch64", Ok(Machine::Aarch64)),
        ] {
            assert_eq!(machine(text), expected);
        }
        let expected = "unknown machine \"riscv64\": expected x86-64 or aarch64";
        assert_eq!(machine("riscv64"), Err(expected.to_owned()));
    }

    #[test]
    fn words_behind_the_program_are_its_own_and_those_before_it_are_options() {
        let words = |words: &str| Gossamer::try_parse_from(words.split(' '));
        for program in ["kv bench --hosts 3", "-- kv bench --hosts 3", "kv -v -- --identity"] {
            let parsed = words(&format!("gossamer run --hosts a {program}")).unwrap();
            let Command::Run(run) = parsed.command else { panic!("{parsed:?}") };
            let own: Vec<&str> = program.trim_start_matches("-- ").split(' ').collect();
            assert_eq!(run.hosts.as_deref().map(<[_]>::len), Some(1));
            assert_eq!(run.program, own);
        }
        let error = words("gossamer run --hosts a --processes 2 -- kv").unwrap_err().to_string();
        assert!(error.contains("'--processes'"), "{error}");
        assert!(error.contains("'--processes-per-host'"), "{error}");
    }

    #[test]
    fn an_address_is_a_name_or_an_ip_address_with_or_without_a_port() {
        for good in ["node-1.rack", "node1:7474", "10.0.0.1", "10.0.0.1:80", "fe80::1", "[::1]:80"]
        {
            assert_eq!(address(good).as_deref(), Ok(good));
        }
        for bad in ["", "not an address", "10.0.0.1:99999", "1.2.3", "a..b", "a:0", "a:b", ":80"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
