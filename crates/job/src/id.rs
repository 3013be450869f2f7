//! [`JobId`]: the number of a job, and the names that its hosts have in their certificates.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, de};
use thiserror::Error;
use transport_api::HostId;

/// Identifies one run of a program: every process of a job has the same, no two jobs do. It is
/// random, so that no process can guess that of another job. As text it is 32 hexadecimal digits.
///
/// ```
/// use gossamer_job::JobId;
///
/// let job: JobId = "000102030405060708090a0b0c0d0e0f".parse()?;
/// assert_eq!(job.to_string(), "000102030405060708090a0b0c0d0e0f");
/// # Ok::<(), gossamer_job::JobIdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u128);

/// The text is not the number of a job.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid job {0:?}: expected 32 hexadecimal digits")]
pub struct JobIdError(String);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for JobId {
    type Err = JobIdError;

    fn from_str(text: &str) -> Result<Self, JobIdError> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(Self).ok_or_else(|| JobIdError(text.chars().take(40).collect()))
    }
}

impl Serialize for JobId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'_, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// The DNS name that the certificate of a host of a job must have among its subject alternative
/// names.
///
/// ```
/// use gossamer_job::{JobId, certificate_name};
/// use transport_api::HostId;
/// let name = certificate_name(JobId(0xabc), HostId(3));
/// assert_eq!(name, "host-3.job-00000000000000000000000000000abc.gossamer.internal");
/// ```
pub fn certificate_name(job: JobId, host: HostId) -> String {
    format!("host-{}.job-{job}.gossamer.internal", host.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_numbers_are_32_digits() {
        assert_eq!(JobId(10).to_string().parse::<JobId>(), Ok(JobId(10)));
        for text in
            ["", "a", "+0000000000000000000000000000001", "0x000102030405060708090a0b0c0d0e"]
        {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
    }
}
