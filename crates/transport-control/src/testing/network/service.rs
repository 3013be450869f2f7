//! One round of a host's service thread: it reads what has arrived, polls the control plane, and acts
//! on the outputs, as a transport does; and what [`Network`] checks meanwhile.

use std::collections::BTreeSet;

use transport_api::{HostId, LossReason, PeerEvent};

use crate::config::{CutOff, Reach};
use crate::message::{MESSAGE_BYTES, Message};
use crate::output::Output;
use crate::testing::network::{Ended, Host, Network, Packet, ROOM, SimMedium, Use};

impl Network {
    pub(super) fn serve(&mut self, host: HostId) {
        let it = &self.hosts[host.0 as usize];
        if !it.is_alive || it.stalled > self.now {
            return;
        }
        self.host(host).has_room = false;
        for peer in self.others(host) {
            self.read(peer, host);
            self.note_stop(peer, host);
        }
        self.pass_polls(host);
        let now = self.now;
        while let Some(output) = self.host(host).control.poll(now) {
            self.act(host, output);
            // What runtime threads have left behind counts at once.
            self.pass_polls(host);
        }
    }

    /// `to` reads what has arrived from `from`.
    fn read(&mut self, from: HostId, to: HostId) {
        let now = self.now;
        loop {
            let wire = self.wire(from, to);
            if wire.is_closed {
                wire.queue.clear();
            }
            if wire.queue.front().is_none_or(|(at, _)| *at > now) {
                break;
            }
            let Some((_, packet)) = wire.queue.pop_front() else { break };
            if wire.queue.len() == ROOM - 1 {
                self.host(from).control.set_writable(to, true);
                self.host(from).has_room = true;
            }
            let control = &mut self.host(to).control;
            match packet {
                Packet::Message(bytes) => control.receive(now, from, &bytes, None),
                Packet::Goodbye => control.left(from),
                Packet::End => {
                    let reason = LossReason::Connection("it closed its connection".into());
                    control.disconnected(from, reason);
                }
            }
        }
    }

    /// `to` notices that the process of `from` has ended, once it has read everything.
    fn note_stop(&mut self, from: HostId, to: HostId) {
        let has_more = !self.wire(from, to).queue.is_empty();
        if self.rack.cut_off == CutOff::AtStop && !self.host(from).is_alive && !has_more {
            let control = &mut self.host(to).control;
            let reason = LossReason::Connection("its process has ended".into());
            control.disconnected(from, reason);
            control.stopped(from);
        }
    }

    fn pass_polls(&mut self, host: HostId) {
        let now = self.now;
        let it = self.host(host);
        while let Some(&(at, thread, epoch)) = it.passes.first()
            && at <= now
        {
            it.passes.pop_first();
            let passed = it.inhibited.range(..=epoch).map(|(_, region)| *region);
            for region in passed.collect::<Vec<_>>() {
                if let Some(users) = it.users.get_mut(&region) {
                    users.remove(&thread);
                }
            }
            let in_use = |(epoch, region): (&u64, &Use)| {
                let users = it.users.get(region);
                users.is_none_or(BTreeSet::is_empty).then_some(*epoch)
            };
            let quiet: Vec<_> = it.inhibited.range(..=epoch).filter_map(in_use).collect();
            quiet.into_iter().for_each(|epoch| it.control.quiesced(epoch));
        }
    }

    fn act(&mut self, host: HostId, output: Output<SimMedium>) {
        match output {
            Output::Send { to, message, .. } => {
                self.note(host, format!("sends {to} {message:?}"));
                let mut bytes = Vec::new();
                message.encode(&mut bytes);
                assert!(bytes.len() <= MESSAGE_BYTES, "{} bytes", bytes.len());
                assert_eq!(Message::decode(&bytes), Ok(message), "messages have one encoding");
                let is_blocked = self.wire(host, to).queue.len() >= ROOM;
                assert!(!is_blocked, "{host} sends {to} what has no room");
                self.post(host, to, Packet::Message(bytes));
            }
            Output::Close(peer) => {
                self.note(host, format!("closes {peer}"));
                self.wire(peer, host).is_closed = true;
                self.post(host, peer, Packet::End);
            }
            Output::PeerGone(event) => {
                self.note(host, format!("reports {event:?}"));
                let (PeerEvent::Lost(peer, _) | PeerEvent::Left(peer)) = event;
                let now = self.now;
                let before = self.host(host).gone.insert(peer, (now, event));
                assert_eq!(before, None, "{host} reports the end of {peer} twice");
            }
            Output::Imported { requester, owner, key, region, .. } => {
                let generation = region.generation;
                let region = (owner, key, generation);
                self.end(host, requester, Ended::Imported(generation));
                let is_inhibited = |it: &Host| it.inhibited.values().any(|other| *other == region);
                let is_honest = owner == host || !self.wire(owner, host).is_hostile;
                let is_told = owner == host || self.rack.reach == Reach::Direct;
                if is_honest && is_told {
                    assert!(!is_inhibited(self.host(host)), "{region:?} was inhibited at {host}");
                }
                // An owner that has given this host up has stopped waiting for it.
                let is_counted = !self.host(owner).gone.contains_key(&host);
                if is_honest && is_told && is_counted {
                    let is_revoked = self.host(owner).revoked.contains(&region);
                    assert!(!is_revoked, "{host} imports {region:?} after its revocation");
                }
                let threads = (0..self.rack.threads).collect();
                self.host(host).users.insert(region, threads);
            }
            Output::ImportFailed { requester, error, .. } => {
                self.end(host, requester, Ended::Failed(error));
            }
            Output::Inhibit { owner, key, generation, epoch } => {
                self.note(host, format!("inhibits {key:?} {generation} of {owner}"));
                let delay = self.rack.delay;
                for thread in 0..self.rack.threads {
                    let at = self.now + self.random_time(delay);
                    self.host(host).passes.insert((at, thread, epoch));
                }
                self.host(host).inhibited.insert(epoch, (owner, key, generation));
            }
            Output::Revoked { requester, key, generation, busy, .. } => {
                let is_quiet = busy.is_empty();
                if let Some(requester) = requester {
                    self.end(host, requester, Ended::Revoked(is_quiet));
                }
                let region = (host, key, generation);
                if is_quiet && self.rack.reach == Reach::Direct {
                    self.check_quiet(host, region);
                }
                self.host(host).revoked.insert(region);
            }
            Output::Departed { requester } => self.end(host, requester, Ended::Departed),
        }
    }

    /// No thread may use `region` of `owner`, unless the owner counts its host as gone and that cuts it
    /// off.
    fn check_quiet(&mut self, owner: HostId, region: Use) {
        for host in (0..self.rack.hosts).map(HostId) {
            let is_cut_off = self.rack.cut_off == CutOff::AtEnd;
            let is_gone = is_cut_off && self.host(owner).gone.contains_key(&host);
            let is_honest = host == owner
                || !self.wire(host, owner).is_hostile && !self.wire(owner, host).is_hostile;
            let it = self.host(host);
            let in_use = it.users.get(&region).is_some_and(|threads| !threads.is_empty());
            if it.is_alive && !is_gone && is_honest {
                assert!(!in_use, "{host} may still use {region:?} after its revocation");
            }
        }
    }

    fn end(&mut self, host: HostId, request: u64, ended: Ended) {
        self.note(host, format!("request {request}: {ended:?}"));
        let before = self.host(host).ended.insert(request, ended);
        assert_eq!(before, None, "request {request} of {host} ends twice");
    }
}
