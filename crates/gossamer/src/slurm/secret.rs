//! What the tasks of a step derive from the secret of their job: the number of the rack, the key of
//! its authority, and the ports where they look for each other. Another step of the same job has
//! others, so that nothing of one can be used in another.

use super::SlurmError;
use serde::{Deserialize, Serialize, de};
use std::{borrow::Cow, fmt, str::FromStr};
use transport_tcp::JobId;

/// The first port at which tasks may meet, and how many there are: below those that Linux gives to
/// whoever connects.
const FIRST_PORT: u16 = 20_480;
const PORTS: u16 = 12_288;
/// Ports that are tried, for the case that something else has the first.
pub(crate) const TRIED: usize = 4;

/// What the processes of a job know and nobody else does. `Debug` does not show it.
///
/// ```
/// use gossamer::slurm::Secret;
///
/// let secret = Secret::new([7; 32]);
/// let text = secret.to_hex();
/// assert_eq!(text.len(), 64);
/// assert_eq!(text.parse::<Secret>()?, secret);
/// assert!(!format!("{secret:?}").contains("07"));
/// # Ok::<(), gossamer::slurm::SlurmError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// The secret with these bytes, which nobody must be able to guess.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret as 64 hexadecimal digits, for the environment of the job.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What the processes of one machine meet by, of which `first` is the first; those of another
    /// machine have another.
    #[cfg(any(test, all(feature = "shm", not(feature = "rdma"))))]
    pub(crate) fn of_neighbours(&self, first: transport_api::HostId) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("gossamer, 2026: neighbours");
        hasher.update(&self.0).update(&first.0.to_le_bytes());
        *hasher.finalize().as_bytes()
    }

    /// What follows from the secret for one step of a job.
    pub(crate) fn derive(&self, job: &str, step: &str) -> Derived {
        let derive = |purpose: &str| {
            let mut hasher = blake3::Hasher::new_derive_key(purpose);
            hasher.update(&self.0);
            for part in [job, step] {
                hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
            }
            *hasher.finalize().as_bytes()
        };
        let number = derive("gossamer under Slurm, 2026: number of the rack");
        let port = derive("gossamer under Slurm, 2026: ports");
        let word = |at: usize| u16::from_le_bytes([port[at], port[at + 1]]);
        Derived {
            job: JobId(u128::from_le_bytes(number[..16].try_into().expect("16 of 32 bytes"))),
            seed: derive("gossamer under Slurm, 2026: key of the authority"),
            secret: Secret(derive("gossamer under Slurm, 2026: secret of the step")),
            ports: std::array::from_fn(|n| FIRST_PORT + word(2 * n) % PORTS),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl FromStr for Secret {
    type Err = SlurmError;

    fn from_str(text: &str) -> Result<Self, SlurmError> {
        let text = text.trim();
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(SlurmError::BadSecret);
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| SlurmError::BadSecret)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'_, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// What follows from a secret for one step of a job.
pub(crate) struct Derived {
    pub(crate) job: JobId,
    /// The private key of the authority.
    pub(crate) seed: [u8; 32],
    /// What the processes of the step know and no others do.
    pub(crate) secret: Secret,
    /// Where to meet, the first choice first.
    pub(crate) ports: [u16; TRIED],
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport_api::HostId;

    #[test]
    fn what_follows_is_the_same_for_all_tasks_of_a_step_and_for_no_others() {
        let secret = Secret::new([1; 32]);
        let (one, same) = (secret.derive("12", "0"), secret.derive("12", "0"));
        assert_eq!((one.job, one.seed, one.ports), (same.job, same.seed, same.ports));
        let others = [
            secret.derive("12", "1"),
            secret.derive("1", "20"),
            secret.derive("120", ""),
            Secret::new([2; 32]).derive("12", "0"),
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

    #[test]
    fn what_is_no_secret_is_refused_without_being_shown() {
        for text in ["", "abc", &"g".repeat(64), &"é".repeat(32), &"ab".repeat(33)] {
            let error = text.parse::<Secret>().unwrap_err().to_string();
            assert!(error.contains("gossamer secret"), "{error}");
            assert!(text.len() < 4 || !error.contains(text), "{error}");
        }
    }
}
