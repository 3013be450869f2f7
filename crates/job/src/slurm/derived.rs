//! What the tasks of a step derive from the secret of their job: the number of the rack, the key of
//! its authority, and the ports where they look for each other. Each step of a job has others, so
//! that nothing of one step can be used in another.

use crate::id::JobId;
use crate::secret::Secret;

/// The first port of task 0's listener, and how many ports there are: below the range from which
/// Linux takes the ports of outgoing connections.
const FIRST_PORT: u16 = 20_480;
const PORTS: u16 = 12_288;
/// Ports that are tried, in case another program uses the first.
pub(crate) const PORT_CANDIDATES: usize = 4;

/// What follows from a secret for one step of a job.
pub(crate) struct Derived {
    pub(crate) job: JobId,
    /// The private key of the authority.
    pub(crate) seed: [u8; 32],
    /// Known only to the processes of the step.
    pub(crate) secret: Secret,
    /// The ports of task 0's listener, the first choice first.
    pub(crate) ports: [u16; PORT_CANDIDATES],
}

impl Derived {
    /// Derives everything for step `step` of Slurm's job `job`.
    pub(crate) fn new(secret: &Secret, job: &str, step: &str) -> Self {
        let derive = |purpose: &str| {
            let mut hasher = blake3::Hasher::new_derive_key(purpose);
            hasher.update(secret.bytes());
            for part in [job, step] {
                hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
            }
            *hasher.finalize().as_bytes()
        };
        let number = derive("gossamer under Slurm, 2026: number of the rack");
        let port = derive("gossamer under Slurm, 2026: ports");
        let word = |at: usize| u16::from_le_bytes([port[at], port[at + 1]]);
        Self {
            job: JobId(u128::from_le_bytes(number[..16].try_into().expect("16 of 32 bytes"))),
            seed: derive("gossamer under Slurm, 2026: key of the authority"),
            secret: Secret::new(derive("gossamer under Slurm, 2026: secret of the step")),
            ports: std::array::from_fn(|n| FIRST_PORT + word(2 * n) % PORTS),
        }
    }
}

#[cfg(test)]
mod tests {
    use transport_api::HostId;

    use super::*;

    #[test]
    fn all_tasks_of_a_step_derive_the_same_and_no_others_do() {
        let secret = Secret::new([1; 32]);
        let (one, same) = (Derived::new(&secret, "12", "0"), Derived::new(&secret, "12", "0"));
        assert_eq!((one.job, one.seed, one.ports), (same.job, same.seed, same.ports));
        let others = [
            Derived::new(&secret, "12", "1"),
            Derived::new(&secret, "1", "20"),
            Derived::new(&secret, "120", ""),
            Derived::new(&Secret::new([2; 32]), "12", "0"),
        ];
        for other in others {
            assert_ne!(one.job, other.job);
            assert_ne!(one.seed, other.seed);
            assert_ne!(one.secret, other.secret);
        }
        let (first, second) = (HostId(0), HostId(1));
        assert_eq!(one.secret.of_neighbours(first), same.secret.of_neighbours(first));
        assert_ne!(one.secret.of_neighbours(first), one.secret.of_neighbours(second));
        assert!(one.ports.iter().all(|port| (FIRST_PORT..FIRST_PORT + PORTS).contains(port)));
    }
}
