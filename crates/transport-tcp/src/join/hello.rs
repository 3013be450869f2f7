//! The first messages on a connection: which host dials which, for what kind of connection, of which
//! job and build, on what kind of processor.
//!
//! Both messages have a fixed length, and nothing else is read before they have been checked. The
//! hello proves nothing by itself: the certificate of the dialler does.
//!
//! ```text
//!   dialler                                     listener
//!   TLS handshake, both with certificates  <->
//!   Hello                                  --->  checks: job, build, processor, rack, host, kind
//!                                          <---  Verdict: welcome, or why not, in words
//! ```

use primitive::CpuFeatures;
use transport_api::HostId;

use crate::{Build, JobId};

/// The version of the protocol of this crate; hosts of one rack have the same, as they are one build.
pub(crate) const VERSION: u32 = 4;

/// Bytes of a hello.
pub(crate) const HELLO: usize = 96;
/// Bytes of a verdict.
pub(crate) const VERDICT: usize = 1024;

const MAGIC: [u8; 8] = *b"gossamer";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConnectionKind {
    /// The operations of the thread of this number on both hosts.
    Thread(u32),
    /// The messages of the control plane.
    Control,
}

/// What the dialler sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) from: HostId,
    pub(crate) to: HostId,
    pub(crate) kind: ConnectionKind,
    pub(crate) hosts: u32,
    pub(crate) threads: u32,
    pub(crate) job: JobId,
    pub(crate) build: Build,
    /// The features of the dialler's processor.
    pub(crate) cpu: CpuFeatures,
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO] {
        let kind = match self.kind {
            ConnectionKind::Thread(thread) => thread,
            ConnectionKind::Control => u32::MAX,
        };
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        let numbers = [self.version, self.from.0, self.to.0, kind, self.hosts, self.threads];
        for (at, number) in bytes[8..32].chunks_exact_mut(4).zip(numbers) {
            at.copy_from_slice(&number.to_le_bytes());
        }
        bytes[32..48].copy_from_slice(&self.job.0.to_le_bytes());
        bytes[48..80].copy_from_slice(&self.build);
        bytes[80..].copy_from_slice(&self.cpu.bits().to_le_bytes());
        bytes
    }

    /// `None` if no build of this project sends this.
    pub(crate) fn decode(bytes: &[u8; HELLO]) -> Option<Hello> {
        let (mut job, mut build, mut cpu) = ([0; 16], [0; 32], [0; 16]);
        job.copy_from_slice(&bytes[32..48]);
        build.copy_from_slice(&bytes[48..80]);
        cpu.copy_from_slice(&bytes[80..]);
        let number = |index: usize| {
            let at = 8 + 4 * index;
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let kind = match number(3) {
            u32::MAX => ConnectionKind::Control,
            thread => ConnectionKind::Thread(thread),
        };
        (bytes[..8] == MAGIC).then(|| Hello {
            version: number(0),
            from: HostId(number(1)),
            to: HostId(number(2)),
            kind,
            hosts: number(4),
            threads: number(5),
            job: JobId(u128::from_le_bytes(job)),
            build,
            cpu: CpuFeatures::from_bits(u128::from_le_bytes(cpu)),
        })
    }

    /// Why a listener that would itself send `ours` (with `from` for its own number) refuses this;
    /// `None` if it accepts.
    pub(crate) fn objection(&self, ours: &Hello) -> Option<String> {
        let short =
            |build: &Build| build[..8].iter().map(|b| format!("{b:02x}")).collect::<String>();
        if self.job != ours.job {
            return Some("it belongs to another job".into());
        }
        if self.version != ours.version {
            return Some(format!("it speaks protocol {}, this is {}", self.version, ours.version));
        }
        if self.build != ours.build {
            return Some(format!(
                "it is build {}, this is {}: start all hosts from one executable",
                short(&self.build),
                short(&ours.build)
            ));
        }
        if self.cpu != ours.cpu {
            return Some(self.other_processor(ours));
        }
        if (self.hosts, self.threads) != (ours.hosts, ours.threads) {
            return Some(format!(
                "its rack has {} hosts of {} threads, this has {} of {}",
                self.hosts, self.threads, ours.hosts, ours.threads
            ));
        }
        if self.to != ours.from {
            return Some(format!("it wants {}, this is {}", self.to, ours.from));
        }
        if self.from.0 >= ours.hosts || self.from <= ours.from {
            return Some(format!("{} does not dial {}", self.from, ours.from));
        }
        match self.kind {
            ConnectionKind::Thread(thread) if thread >= ours.threads => {
                Some(format!("there is no thread {thread}"))
            }
            _ => None,
        }
    }

    /// What differs between the processors of the two.
    fn other_processor(&self, ours: &Hello) -> String {
        let lacks = |host: HostId, lacks: CpuFeatures| match lacks.is_empty() {
            true => String::new(),
            false => format!("the processor of {host} lacks {lacks}; "),
        };
        format!(
            "{}{}run the job on processors of one kind, or see `Rack::mixed_processors`",
            lacks(self.from, ours.cpu.without(self.cpu)),
            lacks(ours.from, self.cpu.without(ours.cpu)),
        )
    }
}

/// What the listener answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Welcome,
    Refused(String),
}

impl Verdict {
    pub(crate) fn encode(&self) -> [u8; VERDICT] {
        let mut bytes = [0; VERDICT];
        if let Verdict::Refused(why) = self {
            let text = &why.as_bytes()[..why.floor_char_boundary(VERDICT - 1)];
            bytes[0] = 1;
            bytes[1..=text.len()].copy_from_slice(text);
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; VERDICT]) -> Option<Verdict> {
        let text = String::from_utf8_lossy(&bytes[1..]);
        match bytes[0] {
            0 => Some(Verdict::Welcome),
            1 => Some(Verdict::Refused(text.trim_end_matches('\0').escape_debug().to_string())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello() -> Hello {
        let (from, to) = (HostId(2), HostId(1));
        let (job, build, cpu) = (JobId(7), [3; 32], CpuFeatures::from_bits(0b101));
        Hello {
            version: VERSION,
            from,
            to,
            kind: ConnectionKind::Thread(1),
            hosts: 3,
            threads: 2,
            job,
            build,
            cpu,
        }
    }

    #[test]
    fn processors_that_differ_are_named_with_their_hosts_and_features() {
        let ours = Hello { from: HostId(1), ..hello() };
        let objection = |bits| {
            let theirs = Hello { cpu: CpuFeatures::from_bits(bits), ..hello() };
            theirs.objection(&ours).expect("an objection")
        };
        let name = |bits| CpuFeatures::from_bits(bits).to_string();
        let (lacking, other) = (objection(0b001), objection(0b110));
        assert!(lacking.contains(&format!("host 2 lacks {};", name(0b100))), "{lacking}");
        assert!(!lacking.contains("host 1 lacks"), "{lacking}");
        assert!(other.contains(&format!("host 2 lacks {};", name(0b001))), "{other}");
        assert!(other.contains(&format!("host 1 lacks {};", name(0b010))), "{other}");
        // Also when they differ in everything.
        let all = Verdict::Refused(objection(!0b101));
        assert_eq!(Verdict::decode(&all.encode()), Some(all));
    }

    #[test]
    fn every_difference_has_its_own_words() {
        let ours = Hello { from: HostId(1), ..hello() };
        assert_eq!(hello().objection(&ours), None);
        assert_eq!(Hello { kind: ConnectionKind::Control, ..hello() }.objection(&ours), None);
        let different = [
            (Hello { job: JobId(8), ..hello() }, "another job"),
            (Hello { version: 9, ..hello() }, "protocol 9"),
            (Hello { build: [4; 32], ..hello() }, "it is build 0404"),
            (Hello { hosts: 4, ..hello() }, "has 4 hosts"),
            (Hello { threads: 4, ..hello() }, "of 4 threads"),
            (Hello { to: HostId(0), ..hello() }, "wants host 0"),
            (Hello { from: HostId(3), ..hello() }, "host 3 does not dial"),
            (Hello { from: HostId(0), ..hello() }, "host 0 does not dial"),
            (Hello { from: HostId(1), ..hello() }, "host 1 does not dial"),
            (Hello { kind: ConnectionKind::Thread(2), ..hello() }, "no thread 2"),
        ];
        for (other, words) in different {
            let objection = other.objection(&ours).expect("an objection");
            assert!(objection.contains(words), "{objection}");
        }
    }

    proptest! {
        #[test]
        fn words_come_back(numbers in any::<[u32; 6]>(), job: u128, build: [u8; 32], cpu: u128, why: String) {
            let [version, from, to, kind, hosts, threads] = numbers;
            let kind = if kind == u32::MAX { ConnectionKind::Control } else { ConnectionKind::Thread(kind) };
            let (from, to, job) = (HostId(from), HostId(to), JobId(job));
            let cpu = CpuFeatures::from_bits(cpu);
            let hello = Hello { version, from, to, kind, hosts, threads, job, build, cpu };
            prop_assert_eq!(Hello::decode(&hello.encode()), Some(hello));
            prop_assert_eq!(Verdict::decode(&Verdict::Welcome.encode()), Some(Verdict::Welcome));
            let refused = Verdict::decode(&Verdict::Refused(why).encode());
            prop_assert!(matches!(refused, Some(Verdict::Refused(_))));
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(hello in any::<[u8; 32]>(), verdict in any::<[u8; 32]>()) {
            let (mut long, mut longer) = ([0; HELLO], [0; VERDICT]);
            long[..32].copy_from_slice(&hello);
            longer[..32].copy_from_slice(&verdict);
            prop_assert_eq!(Hello::decode(&long).is_some(), hello[..8] == MAGIC);
            prop_assert_eq!(Verdict::decode(&longer).is_some(), verdict[0] < 2);
        }
    }
}
