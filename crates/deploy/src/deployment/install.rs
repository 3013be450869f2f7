//! What a deployment does on one host: programs, card, settings, daemon. Files are compared by their
//! digests, and sent only if they differ.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::action::{Action, path};
use crate::deployment::{Deployment, Outcome, PROGRAMS};
use crate::probe::Facts;
use crate::rack_file::Host;
use crate::scripts;

/// The age at which a host gets a new certificate; certificates are valid for a year.
const RENEW_AFTER: Duration = Duration::from_secs(180 * 24 * 60 * 60);

/// The administrator's list of daemons, as `gossamer` keeps it.
#[derive(Default, Deserialize)]
struct Known {
    #[serde(default)]
    hosts: BTreeMap<String, String>,
}

impl Deployment<'_> {
    /// Installs what is missing on a host, and starts its daemon.
    pub(super) fn install(&self, host: &Host, facts: &Facts) -> Result<Outcome> {
        let mut outcome = Outcome::Unchanged;
        let mut update = |what: String| {
            outcome = Outcome::Updated;
            self.mode.step(&what);
        };
        let name = &host.name;
        for program in PROGRAMS {
            let (file, target) = (self.programs.path(program), format!("bin/{program}"));
            let digest = self.digest(&file)?;
            if digest != facts.get(&target) {
                update(format!("{name}: sending {program}"));
                self.on_with(host, &scripts::put(host, &target, "755", &digest), &file)?;
            }
        }
        self.act(Action::new(["mkdir", "-p", &path(&self.state.join("hosts"))]))?;
        let (card, is_old) = (self.file(name, "card"), self.card_is_old(host)?);
        if is_old || self.digest(&card)? != facts.get("identity/card") {
            update(format!("{name}: joining the rack"));
            self.join(host)?;
        }
        for (file, what) in [
            ("revoked.pem", "the list of revoked certificates"),
            ("signers.pem", "the certificates of the signers"),
        ] {
            let (ours, target) = (self.state.join("ca").join(file), format!("identity/{file}"));
            let digest = self.digest(&ours)?;
            if ours.exists() && digest != facts.get(&target) {
                update(format!("{name}: sending {what}"));
                self.on_with(host, &scripts::put(host, &target, "644", &digest), &ours)?;
            }
        }
        for (ending, target, text) in [
            ("toml", "gossamer.toml", scripts::settings(host)),
            ("service", "gossamerd.service", scripts::unit(&self.rack.name, host)),
        ] {
            let file = self.file(name, ending);
            self.mode.write(&file, &text)?;
            let digest = self.digest(&file)?;
            if digest != facts.get(target) {
                update(format!("{name}: writing {target}"));
                self.on_with(host, &scripts::put(host, target, "600", &digest), &file)?;
            }
        }
        let stamp = self.stamp(name)?;
        if stamp != facts.get("started") {
            update(format!("{name}: starting the daemon"));
            self.on(host, &scripts::start(&self.rack.name, host, &stamp))?;
        }
        if outcome == Outcome::Unchanged {
            self.mode.status(&format!("{name}: up to date, and the daemon runs"));
        }
        Ok(outcome)
    }

    /// Signs the key of a host, which it makes if it has none.
    fn join(&self, host: &Host) -> Result<()> {
        let (request, card) = (self.file(&host.name, "request"), self.file(&host.name, "card"));
        let ask = self.ssh(host, &scripts::request_card(host)).output(&request);
        self.act(ask)?;
        let signing = self.signing.lock().expect("no thread panics with this lock");
        let address = host.listens_at().to_string();
        let sign = Action::new([path(&self.programs.path("gossamer"))])
            .args(["rack", "sign", "--dir", &path(&self.state), "--name", &host.name])
            .args(["--role", "host", "--address", &address, &path(&request)]);
        self.act(sign.output(&card))?;
        drop(signing);
        let digest = self.digest(&card)?;
        self.on_with(host, &scripts::join(host, &digest), &card).map(drop)
    }

    /// Whether the card of a host must be renewed.
    fn card_is_old(&self, host: &Host) -> Result<bool> {
        let list = self.state.join("admin/hosts.toml");
        let Ok(text) = fs::read_to_string(&list) else { return Ok(true) };
        let known: Known = toml::from_str(&text).with_context(|| path(&list))?;
        if known.hosts.get(&host.name) != Some(&host.listens_at().to_string()) {
            return Ok(true);
        }
        let Ok(card) = fs::metadata(self.file(&host.name, "card")) else { return Ok(true) };
        let age = SystemTime::now().duration_since(card.modified()?).unwrap_or_default();
        Ok(age > RENEW_AFTER)
    }

    /// The digests of the files that a daemon is started with.
    fn stamp(&self, host: &str) -> Result<String> {
        let files = [
            self.programs.path("gossamerd"),
            self.file(host, "card"),
            self.file(host, "toml"),
            self.file(host, "service"),
        ];
        let digests: Vec<String> =
            files.iter().map(|file| self.digest(file)).collect::<Result<_>>()?;
        Ok(digests
            .iter()
            .map(|digest| &digest[..digest.len().min(16)])
            .collect::<Vec<_>>()
            .join("-"))
    }
}
