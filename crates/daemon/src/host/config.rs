//! The settings of a daemon: `gossamer.toml`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;
use thiserror::Error;

#[cfg(test)]
use crate::security::identity::PORT;

/// The settings of a daemon.
///
/// ```
/// use gossamer_daemon::host::config::Config;
///
/// let config = Config::parse(
///     r#"
///     identity = "/etc/gossamer"
///     state = "/var/lib/gossamer"
///     listen = "10.0.0.2:7474"
///     "#,
/// )?;
/// assert_eq!(config.data_address().to_string(), "10.0.0.2");
/// # Ok::<(), gossamer_daemon::host::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The directory of the host's certificate and key.
    pub identity: PathBuf,
    /// The directory for programs and notes of jobs, for this daemon alone.
    pub state: PathBuf,
    /// The address at which it listens for controllers and other callers.
    pub listen: SocketAddr,
    /// The address at which the processes of its jobs listen for each other; that of `listen` if
    /// not set.
    data_address: Option<IpAddr>,
    /// The loopback address at which it serves `/metrics` over HTTP, without encryption or
    /// authentication; not served if not set.
    pub metrics: Option<SocketAddr>,
    /// Whether this machine runs nothing but jobs, so that the threads of a job that has the cores to
    /// itself may be pinned.
    #[serde(default)]
    pub exclusive_cores: bool,
    /// Most bytes of programs to keep; the least recently used ones are removed.
    #[serde(default = "store_bytes")]
    pub store_bytes: u64,
}

fn store_bytes() -> u64 {
    8 << 30
}

/// Settings cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// A setting is missing, unknown or malformed.
    #[error(transparent)]
    Parse(#[from] toml::de::Error),
    /// Settings contradict each other.
    #[error("{0}")]
    Invalid(String),
}

impl Config {
    /// Reads a file of settings. Relative paths in it are relative to its directory. They become
    /// absolute, since the processes of jobs have other working directories.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let read = |error| ConfigError::Read { path: path.to_owned(), error };
        let mut config = Self::parse(&fs::read_to_string(path).map_err(read)?)?;
        let path = std::path::absolute(path).map_err(read)?;
        let base = path.parent().unwrap_or(Path::new("/"));
        config.identity = base.join(config.identity);
        config.state = base.join(config.state);
        Ok(config)
    }

    /// Reads settings.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)?;
        if config.data_address().is_unspecified() {
            let text = "`listen` is every address of this machine: set `data_address` to the one at \
                        which the processes of other hosts reach those of this host";
            return Err(ConfigError::Invalid(text.into()));
        }
        if let Some(metrics) = config.metrics.filter(|address| !address.ip().is_loopback()) {
            return Err(ConfigError::Invalid(format!(
                "`metrics` is {metrics}, expected a loopback address: metrics are served without \
                 authentication (for other machines, put an authenticating proxy in front)"
            )));
        }
        Ok(config)
    }

    /// The address at which the processes of jobs listen for each other.
    pub fn data_address(&self) -> IpAddr {
        self.data_address.unwrap_or(self.listen.ip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(more: &str) -> Result<Config, ConfigError> {
        Config::parse(&format!("identity = \"i\"\nstate = \"s\"\n{more}"))
    }

    #[test]
    fn every_address_is_none_for_data() {
        let error = parse("listen = \"0.0.0.0:7474\"").unwrap_err();
        assert!(error.to_string().contains("data_address"), "{error}");
        let config = parse("listen = \"0.0.0.0:7474\"\ndata_address = \"10.0.0.2\"").unwrap();
        assert_eq!(config.data_address().to_string(), "10.0.0.2");
    }

    #[test]
    fn metrics_are_for_this_machine_alone() {
        let listen = "listen = \"127.0.0.1:1\"\n";
        assert!(parse(&format!("{listen}metrics = \"127.0.0.1:2\"")).is_ok());
        assert!(parse(&format!("{listen}metrics = \"10.0.0.2:2\"")).is_err());
    }

    #[test]
    fn the_example_is_good() {
        let config = Config::parse(include_str!("../../../../dist/gossamer.toml")).unwrap();
        assert_eq!(config.listen.port(), PORT);
    }

    #[test]
    fn unknown_settings_are_errors() {
        let error = parse("listen = \"127.0.0.1:1\"\nlaunch = true").unwrap_err();
        assert!(error.to_string().contains("launch"), "{error}");
    }

    #[test]
    fn paths_start_where_the_file_lies() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("gossamer.toml");
        fs::write(&path, "identity = \"i\"\nstate = \"/s\"\nlisten = \"127.0.0.1:1\"").unwrap();
        let config = Config::load(&path).unwrap();
        assert_eq!(config.identity, place.path().join("i"));
        assert_eq!(config.state, Path::new("/s"));
    }

    #[test]
    fn paths_are_absolute_also_where_that_of_the_file_is_not() {
        let place = tempfile::tempdir_in(".").unwrap();
        let path = Path::new(place.path().file_name().unwrap()).join("gossamer.toml");
        fs::write(&path, "identity = \"i\"\nstate = \"s\"\nlisten = \"127.0.0.1:1\"").unwrap();
        let config = Config::load(&path).unwrap();
        assert!(config.identity.is_absolute() && config.state.is_absolute(), "{config:?}");
    }
}
