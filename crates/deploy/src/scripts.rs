//! What a deployment runs on a host: scripts for its shell, and the files that it writes there.
//!
//! ```text
//!   FOLDER/bin/gossamer, gossamerd    sent if their digests differ
//!   FOLDER/identity/                  a key that is made here and stays here; its card
//!   FOLDER/gossamer.toml              the daemon's settings
//!   FOLDER/gossamerd.service          its unit, copied to where systemd looks, if there is systemd
//!   FOLDER/gossamerd.pid, .log        the daemon, if there is none
//!   FOLDER/started                    digests of the files that the daemon was started with
//!   FOLDER/state/                     the daemon's own; programs of jobs are in its store
//! ```
//!
//! Scripts contain no single quotes, so that they are readable where they are printed, and start in
//! the home directory.

use crate::rack_file::Host;

/// The shell function `runs`, which succeeds if the daemon of this folder runs.
pub(crate) fn runs(rack: &str, host: &Host) -> String {
    let unit = unit_name(rack);
    let unit_runs = format!("  systemctl --user is-active --quiet {unit} 2>/dev/null && return\n");
    format!(
        r#"runs() {{
{unit_runs}  case $(readlink /proc/$(cat gossamerd.pid 2>/dev/null)/exe) in $(pwd -P)/bin/gossamerd*) return 0;; esac
  return 1
}}"#,
        unit_runs = if host.systemd { &unit_runs } else { "" },
    )
}

/// Writes its input, which has this digest, to `name` in the folder, atomically.
pub(crate) fn put(host: &Host, name: &str, mode: &str, digest: &str) -> String {
    let folder = &host.folder;
    let parent = name.rsplit_once('/').map_or(String::new(), |(parent, _)| format!("/{parent}"));
    let receive = receive(&format!("{name}.part"), digest);
    format!(
        "umask 077 && mkdir -p {folder}{parent} && cd {folder} && {receive} && \
         chmod {mode} {name}.part && mv {name}.part {name}"
    )
}

/// Writes the input to `file`; fails if it does not have this digest. Where the connection of ssh
/// breaks, the input ends too early without an error.
fn receive(file: &str, digest: &str) -> String {
    format!(
        "cat >{file} && if [ \"$(sha256sum <{file} | cut -c 1-64)\" != {digest} ]; then rm {file}; \
         echo {file} is not what was sent >&2; exit 1; fi"
    )
}

/// Prints the request for the host's certificate; makes its key if there is none.
pub(crate) fn request_card(host: &Host) -> String {
    format!("cd {} && bin/gossamer rack join --identity identity", host.folder)
}

/// Stores the card that is its input, which has this digest, beside the key.
pub(crate) fn join(host: &Host, digest: &str) -> String {
    format!(
        "cd {} && {} && bin/gossamer rack join --identity identity --card identity/card.part && \
         mv identity/card.part identity/card",
        host.folder,
        receive("identity/card.part", digest)
    )
}

/// (Re)starts the daemon, waits until it listens, and stores `stamp`.
pub(crate) fn start(rack: &str, host: &Host, stamp: &str) -> String {
    let (folder, runs) = (&host.folder, runs(rack, host));
    let detached = format!(
        r#"setsid bin/gossamerd --config gossamer.toml{} </dev/null >gossamerd.log 2>&1 &
echo $! >gossamerd.pid
log="tail -n 20 gossamerd.log""#,
        root_flag(host)
    );
    let launch = if host.systemd {
        let (as_unit, detached) = (indented(&start_unit(rack)), indented(&detached));
        format!(
            "if systemctl --user show-environment >/dev/null 2>&1 && \
             loginctl enable-linger >/dev/null 2>&1; then\n{as_unit}else\n{detached}fi"
        )
    } else {
        detached
    };
    format!(
        r#"cd {folder} || exit 1
{runs}
rm -f started
if [ -e gossamerd.pid ] && runs; then
  kill $(cat gossamerd.pid); n=0
  while runs && [ $n -lt 150 ]; do sleep 0.1; n=$((n + 1)); done
  runs && kill -KILL $(cat gossamerd.pid)
fi
rm -f gossamerd.pid state/address
{launch}
n=0
until [ -e state/address ] || [ $n -ge 300 ]; do
  sleep 0.1; n=$((n + 1)); [ $n -gt 5 ] && ! runs && break
done
if ! [ -e state/address ]; then echo gossamerd does not listen: >&2; $log >&2; exit 1; fi
echo {stamp} >started"#
    )
}

/// Makes the daemon a unit of the user's systemd, and starts it as such.
fn start_unit(rack: &str) -> String {
    let unit = unit_name(rack);
    format!(
        r#"mkdir -p ~/.config/systemd/user && cp gossamerd.service ~/.config/systemd/user/{unit} &&
systemctl --user daemon-reload && systemctl --user enable --quiet {unit} &&
systemctl --user restart {unit} || exit 1
log="journalctl --user --unit {unit} --lines 20 --no-pager --output cat""#
    )
}

fn indented(script: &str) -> String {
    script.lines().map(|line| format!("  {line}\n")).collect()
}

/// The settings of the daemon.
pub(crate) fn settings(host: &Host) -> String {
    format!(
        "identity = \"identity\"\nstate = \"state\"\nlisten = \"{}\"\ndata_address = \"{}\"\n",
        host.listens_at(),
        host.address
    )
}

fn unit_name(rack: &str) -> String {
    format!("gossamerd-{rack}.service")
}

/// The unit of the daemon, for the user's own systemd: that of dist/ with other names, without the
/// settings that only a system unit can have.
pub(crate) fn unit(rack: &str, host: &Host) -> String {
    const UNIT: &str = include_str!("../gossamerd.service");
    const SYSTEM_ONLY: &str = "\n# Only where this is a unit of the system";
    let service = UNIT.split_once("[Service]\n").map_or("", |(_, service)| service);
    let service = service.split_once(SYSTEM_ONLY).map_or("", |(service, _)| service);
    // A relative folder is one in the home directory, which systemd calls %h.
    let home = if host.folder.starts_with('/') { "" } else { "%h/" };
    let folder = format!("{home}{}", host.folder);
    let start = format!(
        "ExecStart={folder}/bin/gossamerd --config {folder}/gossamer.toml{}",
        root_flag(host)
    );
    let lines = service.lines().map(|line| {
        let line = if line.starts_with("ExecStart=") { &start } else { line };
        format!("{line}\n")
    });
    format!(
        "[Unit]\nDescription=Gossamer: {}, a host of the rack {rack}\n\n\
         [Service]\n{}\n[Install]\nWantedBy=default.target\n",
        host.name,
        lines.collect::<String>()
    )
}

/// The option that lets the daemon run as root.
fn root_flag(host: &Host) -> &'static str {
    if host.allow_root { " --allow-root" } else { "" }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::{env, fs};

    use super::*;
    use crate::probe::probe;
    use crate::rack_file::host;

    /// The daemon is started as what `starts` says, and noted; `systemctl` and the others are
    /// scripts that say that they were called.
    fn starts_as(starts: &str, stand_ins: &[(&str, &str)]) {
        let place = env::temp_dir().join(format!("deploy-{starts}-{}", std::process::id()));
        let (home, bin) = (place.join("home"), place.join("path"));
        for folder in [&home.join("g/bin"), &home.join("g/state"), &bin] {
            fs::create_dir_all(folder).unwrap();
        }
        let calls = place.join("calls");
        let script = |path: &std::path::Path, body: &str| {
            let text = format!("#!/bin/sh\necho $(basename $0) $* >>{}\n{body}\n", calls.display());
            fs::write(path, text).unwrap();
            Command::new("chmod").arg("755").arg(path).status().unwrap();
        };
        script(&home.join("g/bin/gossamerd"), "touch state/address");
        for (name, body) in stand_ins {
            script(&bin.join(name), body);
        }
        fs::write(home.join("g/gossamerd.service"), "unit").unwrap();
        let path = format!("{}:{}", bin.display(), env::var("PATH").unwrap());
        let mut sh = Command::new("sh");
        sh.args(["-c", &start("lab", &host("g"), "stamp")]).current_dir(&home);
        let output = sh.env("HOME", &home).env("PATH", path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read_to_string(home.join("g/started")).unwrap(), "stamp\n");
        let called = fs::read_to_string(&calls).unwrap();
        let is_unit = home.join(".config/systemd/user/gossamerd-lab.service").exists();
        assert_eq!(is_unit, starts == "unit", "{called}");
        assert_eq!(called.contains("systemctl --user restart gossamerd-lab.service"), is_unit);
        assert_eq!(called.contains("gossamerd --config gossamer.toml"), !is_unit, "{called}");
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn the_daemon_is_a_unit_where_systemd_may_keep_it() {
        let systemctl = "case $* in *restart*) touch state/address;; esac";
        starts_as("unit", &[("systemctl", systemctl), ("loginctl", "")]);
        starts_as("detached", &[("systemctl", systemctl), ("loginctl", "exit 1")]);
    }

    #[test]
    fn the_unit_is_hardened_as_that_of_the_system() {
        let unit = unit("lab", &host("g"));
        for line in [
            "Delegate=yes",
            "KillMode=mixed",
            "LimitCORE=0",
            "LimitNOFILE=1048576",
            "NoNewPrivileges=yes",
            "OOMPolicy=continue",
            "TasksMax=65536",
            "WantedBy=default.target",
        ] {
            assert!(unit.lines().any(|other| other == line), "no {line} in {unit}");
        }
        let starts: Vec<_> = unit.lines().filter(|line| line.starts_with("ExecStart=")).collect();
        assert_eq!(starts, ["ExecStart=%h/g/bin/gossamerd --config %h/g/gossamer.toml"]);
        for word in ["User=", "StateDirectory", "multi-user", "PrivateTmp", "--allow-root"] {
            assert!(!unit.contains(word), "{word} in {unit}");
        }
        let root = Host { allow_root: true, ..host("g") };
        for text in [super::unit("lab", &root), start("lab", &root, "0")] {
            assert!(text.contains("gossamer.toml --allow-root"), "{text}");
        }
    }

    #[test]
    fn a_file_that_does_not_arrive_whole_replaces_none() {
        let place = env::temp_dir().join(format!("deploy-put-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let input = place.join("input");
        let run = |sent: &str, script: &str| {
            fs::write(&input, sent).unwrap();
            let mut sh = Command::new("sh");
            sh.args(["-c", script]).stdin(fs::File::open(&input).unwrap()).output().unwrap()
        };
        let printed = run("a new program", "sha256sum").stdout;
        let digest = String::from_utf8(printed).unwrap()[..64].to_owned();
        let (folder, card) = (place.join("g"), place.join("g/identity/card"));
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::create_dir_all(folder.join("identity")).unwrap();
        let program = folder.join("bin/gossamer");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        Command::new("chmod").arg("755").arg(&program).status().unwrap();
        fs::write(&card, "the old card").unwrap();
        let host = host(folder.to_str().unwrap());
        for (script, file, old) in [
            (put(&host, "bin/gossamer", "755", &digest), &program, "#!/bin/sh\n"),
            (join(&host, &digest), &card, "the old card"),
        ] {
            let failed = run("a new", &script);
            assert!(!failed.status.success());
            let errors = String::from_utf8_lossy(&failed.stderr);
            assert!(errors.contains("is not what was sent"), "{errors}");
            assert_eq!(fs::read_to_string(file).unwrap(), old);
            assert!(!file.with_extension("part").exists());
        }
        // The program comes last, because the card needs the old one.
        for (script, file) in
            [(join(&host, &digest), &card), (put(&host, "bin/gossamer", "755", &digest), &program)]
        {
            assert!(run("a new program", &script).status.success());
            assert_eq!(fs::read_to_string(file).unwrap(), "a new program");
        }
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn scripts_can_be_quoted() {
        let without = Host { systemd: false, ..host("/srv/g") };
        let host = host("/srv/g");
        let start_without = start("lab", &without, "0");
        assert!(!start_without.contains("systemctl") && start_without.contains("setsid"));
        for script in [
            start_without,
            probe("lab", &host),
            put(&host, "bin/gossamer", "755", "0"),
            request_card(&host),
            join(&host, "0"),
            start("lab", &host, "0-1-2"),
        ] {
            assert!(!script.contains('\''), "{script}");
            let check = Command::new("sh").args(["-n", "-c", &script]).status().unwrap();
            assert!(check.success(), "{script}");
        }
        let relative = Host { folder: "g".into(), ..without };
        assert!(unit("lab", &relative).contains("ExecStart=%h/g/bin/gossamerd --config %h/g/"));
        assert!(unit("lab", &host).contains("ExecStart=/srv/g/bin/gossamerd --config /srv/g/"));
    }
}
