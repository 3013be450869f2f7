//! [`Workload`]: the checked form of a property file: counts, operation mix, distributions, record
//! shape.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::store::number::Decimal;
use crate::store::{ITEM_BYTES_MAX, is_too_large};
use crate::ycsb::core_workloads::builtin;
use crate::ycsb::properties::{Origin, Properties, PropertyError};

/// The properties that [`Workload`] reads; all others are reported as unknown.
const KNOWN: &[&str] = &[
    "workload",
    "recordcount",
    "operationcount",
    "maxexecutiontime",
    "readproportion",
    "updateproportion",
    "scanproportion",
    "insertproportion",
    "readmodifywriteproportion",
    "requestdistribution",
    "zipfianconstant",
    "fieldcount",
    "fieldlength",
    "fieldlengthdistribution",
    "readallfields",
    "writeallfields",
    "minscanlength",
    "maxscanlength",
    "scanlengthdistribution",
    "insertorder",
    "zeropadding",
    "seed",
];

/// Maximum number of fields, and of bytes of one: an item of the store is no larger.
const RECORD_BYTES_MAX: u64 = ITEM_BYTES_MAX as u64;

/// Maximum number of records: keeps record count times record size inside `u64`.
const RECORDS_MAX: u64 = 1 << 40;

/// Theta of YCSB's zipfian distributions unless a workload sets another.
pub const ZIPFIAN_CONSTANT: f64 = 0.99;

/// A workload that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The file cannot be read.
    #[error(
        "cannot read workload file {path} (core workloads are a to f, or workloada to workloadf)"
    )]
    Read {
        /// The path as given.
        path: String,
        /// The I/O error.
        source: std::io::Error,
    },
    /// A property is malformed or out of range.
    #[error(transparent)]
    Property(#[from] PropertyError),
    /// The command line sets an unknown property.
    #[error("{}: unknown property {key} (known: {})", Origin::CommandLine, KNOWN.join(", "))]
    UnknownProperty {
        /// The property.
        key: String,
    },
    /// All proportions are zero.
    #[error("{name}: all operation proportions are 0; set at least one, such as readproportion")]
    NoOperations {
        /// The workload.
        name: String,
    },
    /// A record is larger than an item of the store may be.
    #[error(
        "{name}: fieldcount * fieldlength is {bytes} bytes, expected at most 1 MiB with a key of {key} \
         bytes and the header of an item"
    )]
    RecordTooLarge {
        /// The workload.
        name: String,
        /// The product.
        bytes: usize,
        /// Bytes of the longest key.
        key: usize,
    },
}

/// The distribution that keys are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Distribution {
    /// All records are equally likely.
    Uniform,
    /// Zipfian, with the popular records scattered over the key space by a hash.
    Zipfian,
    /// Zipfian over age: the record inserted last is the most popular.
    Latest,
}

impl FromStr for Distribution {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "uniform" => Ok(Self::Uniform),
            "zipfian" => Ok(Self::Zipfian),
            "latest" => Ok(Self::Latest),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Zipfian => "zipfian",
            Self::Latest => "latest",
        })
    }
}

/// Whether record numbers are hashed into key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InsertOrder {
    /// Neighbouring records have unrelated names (YCSB's default).
    Hashed,
    /// Neighbouring records have neighbouring names.
    Ordered,
}

impl FromStr for InsertOrder {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "hashed" => Ok(Self::Hashed),
            "ordered" => Ok(Self::Ordered),
            _ => Err(()),
        }
    }
}

/// The proportion of each operation; they need not add up to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    /// Read a record.
    pub read: f64,
    /// Overwrite one field of a record, or all with `writeallfields`.
    pub update: f64,
    /// Read records in key order from a given one on.
    pub scan: f64,
    /// Add a record.
    pub insert: f64,
    /// Read a record, change a field, write it back.
    pub read_modify_write: f64,
}

impl Mix {
    /// The sum of all proportions.
    pub fn total(&self) -> f64 {
        self.read + self.update + self.scan + self.insert + self.read_modify_write
    }

    /// The fraction of operations that are inserts, from 0 to 1.
    pub fn insert_share(&self) -> f64 {
        self.insert / self.total()
    }
}

/// A checked workload. It is serializable, so that the other processes of a rack can run it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The name used in messages.
    pub name: String,
    /// Records loaded before the run.
    pub record_count: u64,
    /// Operations of the run, over all clients.
    pub operation_count: u64,
    /// The run stops after this time even if operations remain.
    pub max_execution_time: Option<Duration>,
    /// The proportion of each operation.
    pub mix: Mix,
    /// How the record of an operation is chosen.
    pub request_distribution: Distribution,
    /// Theta of the zipfian distributions; 0.99 unless set.
    pub zipfian_constant: f64,
    /// Fields of a record.
    pub field_count: u32,
    /// Bytes of a field.
    pub field_length: u32,
    /// Whether reads return the whole record instead of one field.
    pub read_all_fields: bool,
    /// Whether updates replace the whole record instead of one field.
    pub write_all_fields: bool,
    /// Minimum number of records of a scan.
    pub min_scan_length: u64,
    /// Maximum number of records of a scan.
    pub max_scan_length: u64,
    /// How the length of a scan is chosen: uniform or zipfian.
    pub scan_length_distribution: Distribution,
    /// Whether record numbers are hashed into key names.
    pub insert_order: InsertOrder,
    /// Minimum number of digits of the number in a key name.
    pub zero_padding: u32,
    /// Seed of all random choices; two runs with the same seed make the same choices.
    pub seed: u64,
}

impl Workload {
    /// Reads the properties of a core workload (`c` or `workloadc`) or of the file at a path. A
    /// file in the current folder with the name of a core workload is written `./workloadc`.
    ///
    /// # Errors
    /// [`WorkloadError::Read`] if there is neither, [`WorkloadError::Property`] for a malformed
    /// line.
    pub fn properties(name_or_path: &str) -> Result<(String, Properties), WorkloadError> {
        if let Some((name, text)) = builtin(name_or_path) {
            return Ok((name.to_owned(), Properties::parse(name, text)?));
        }
        let text = std::fs::read_to_string(name_or_path)
            .map_err(|source| WorkloadError::Read { path: name_or_path.to_owned(), source })?;
        let name = Path::new(name_or_path)
            .file_name()
            .map_or_else(|| name_or_path.to_owned(), |name| name.to_string_lossy().into_owned());
        Ok((name, Properties::parse(name_or_path, &text)?))
    }

    /// Builds the workload that `properties` describe. Unknown properties of a file give warnings,
    /// not errors, because other YCSB programs read the same files. Unset properties have YCSB's
    /// defaults, except that `recordcount` and `operationcount` default to 1000.
    ///
    /// # Errors
    /// [`WorkloadError::Property`] for an invalid value, with its file, line and key;
    /// [`WorkloadError::UnknownProperty`] for an unknown property set on the command line;
    /// [`WorkloadError::NoOperations`] and [`WorkloadError::RecordTooLarge`].
    ///
    /// ```
    /// use gossamer_kv::ycsb::Workload;
    /// let (name, mut properties) = Workload::properties("c").unwrap();
    /// properties.override_with("recordcount=500").unwrap();
    /// let (workload, warnings) = Workload::new(&name, &properties).unwrap();
    /// assert_eq!(workload.record_count, 500);
    /// assert_eq!(workload.mix.read, 1.0);
    /// assert!(warnings.is_empty());
    /// ```
    pub fn new(name: &str, properties: &Properties) -> Result<(Self, Vec<String>), WorkloadError> {
        let p = properties;
        let fraction = |key, default| {
            p.get(key, default, "a fraction from 0 to 1", |v: &f64| (0.0..=1.0).contains(v))
        };
        let count = |key, default, max: u64| {
            p.get(key, default, &format!("a whole number from 1 to {max}"), |v: &u64| {
                (1..=max).contains(v)
            })
        };
        let boolean = |key, default| p.get(key, default, "true or false", |_: &bool| true);
        p.get("fieldlengthdistribution", String::from("constant"), "constant", |v| {
            v == "constant"
        })?;
        let seconds = p.get("maxexecutiontime", 0u64, "a whole number of seconds", |_| true)?;
        let field_count = count("fieldcount", 10, RECORD_BYTES_MAX)?;
        let field_length = count("fieldlength", 100, RECORD_BYTES_MAX)?;
        let max_scan_length = count("maxscanlength", 1000, 1 << 20)?;
        let workload = Self {
            name: name.to_owned(),
            record_count: count("recordcount", 1000, RECORDS_MAX)?,
            operation_count: count("operationcount", 1000, RECORDS_MAX)?,
            max_execution_time: (seconds > 0).then(|| Duration::from_secs(seconds)),
            mix: Mix {
                read: fraction("readproportion", 0.95)?,
                update: fraction("updateproportion", 0.05)?,
                scan: fraction("scanproportion", 0.0)?,
                insert: fraction("insertproportion", 0.0)?,
                read_modify_write: fraction("readmodifywriteproportion", 0.0)?,
            },
            request_distribution: p.get(
                "requestdistribution",
                Distribution::Uniform,
                "uniform, zipfian or latest",
                |_| true,
            )?,
            zipfian_constant: p.get(
                "zipfianconstant",
                ZIPFIAN_CONSTANT,
                "a number above 0 and below 1",
                |v| 0.0 < *v && *v < 1.0,
            )?,
            field_count: field_count as u32,
            field_length: field_length as u32,
            read_all_fields: boolean("readallfields", true)?,
            write_all_fields: boolean("writeallfields", false)?,
            min_scan_length: count("minscanlength", 1, max_scan_length)?,
            max_scan_length,
            scan_length_distribution: p.get(
                "scanlengthdistribution",
                Distribution::Uniform,
                "uniform or zipfian",
                |v| *v != Distribution::Latest,
            )?,
            insert_order: p
                .get("insertorder", InsertOrder::Hashed, "hashed or ordered", |_| true)?,
            zero_padding: p.get("zeropadding", 1, "a whole number from 0 to 200", |v| *v <= 200)?,
            seed: p.get("seed", 1, "a whole number", |_| true)?,
        };
        if workload.mix.total() == 0.0 {
            return Err(WorkloadError::NoOperations { name: name.to_owned() });
        }
        let (key, bytes) = (workload.longest_key(), workload.record_bytes());
        if is_too_large(key, bytes, 0) {
            return Err(WorkloadError::RecordTooLarge { name: name.to_owned(), bytes, key });
        }
        let mut warnings = Vec::new();
        for (key, origin) in p.unknown(KNOWN) {
            if *origin == Origin::CommandLine {
                return Err(WorkloadError::UnknownProperty { key: key.to_owned() });
            }
            warnings.push(format!("{origin}: ignoring unknown property {key}"));
        }
        Ok((workload, warnings))
    }

    /// Bytes of a whole record.
    pub fn record_bytes(&self) -> usize {
        self.field_count as usize * self.field_length as usize
    }

    /// Bytes of the longest key; see [`RecordMaker::key`](crate::ycsb::RecordMaker::key).
    fn longest_key(&self) -> usize {
        let largest = match self.insert_order {
            InsertOrder::Hashed => i64::MIN.unsigned_abs(),
            InsertOrder::Ordered => self.record_count + self.operation_count - 1,
        };
        let digits = Decimal::new(largest).as_bytes().len();
        "user".len() + digits.max(self.zero_padding as usize)
    }

    /// Whether the workload scans, which needs the keys in order.
    pub fn scans(&self) -> bool {
        self.mix.scan > 0.0
    }
}

#[cfg(test)]
mod tests;
