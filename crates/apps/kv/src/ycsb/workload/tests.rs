//! Which workloads YCSB's properties make, and which are refused.

use super::*;

fn parse(text: &str) -> Result<(Workload, Vec<String>), WorkloadError> {
    Workload::new("w", &Properties::parse("w", text).unwrap())
}

#[test]
fn the_core_workloads_match_ycsb() {
    let zipfian = Distribution::Zipfian;
    let expected = [
        ("a", [0.5, 0.5, 0.0, 0.0, 0.0], zipfian),
        ("b", [0.95, 0.05, 0.0, 0.0, 0.0], zipfian),
        ("c", [1.0, 0.0, 0.0, 0.0, 0.0], zipfian),
        ("d", [0.95, 0.0, 0.0, 0.05, 0.0], Distribution::Latest),
        ("e", [0.0, 0.0, 0.95, 0.05, 0.0], zipfian),
        ("f", [0.5, 0.0, 0.0, 0.0, 0.5], zipfian),
    ];
    for (letter, [read, update, scan, insert, read_modify_write], distribution) in expected {
        let (name, properties) = Workload::properties(letter).unwrap();
        let (workload, warnings) = Workload::new(&name, &properties).unwrap();
        assert_eq!(workload.mix, Mix { read, update, scan, insert, read_modify_write });
        assert_eq!(workload.request_distribution, distribution);
        assert_eq!(workload.record_bytes(), 1000);
        assert_eq!(workload.scans(), letter == "e");
        assert_eq!(warnings, [""; 0]);
    }
    assert_eq!(parse("").unwrap().0.mix.read, 0.95);
}

#[test]
fn a_workload_file_is_read_from_its_path() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/workloadb");
    let (name, properties) = Workload::properties(path).unwrap();
    assert_eq!(name, "workloadb");
    assert_eq!(Workload::new(&name, &properties).unwrap().0.mix.update, 0.05);
    assert_eq!(Workload::properties("workloadb").unwrap().0, "workloadb");
    let error = Workload::properties("no/such/file").unwrap_err().to_string();
    assert!(error.contains("no/such/file") && error.contains("a to f"), "{error}");
}

#[test]
fn bad_values_are_errors_that_name_the_line() {
    for (text, message) in [
        ("readproportion=2", "w:1: readproportion=2: expected a fraction from 0 to 1"),
        ("\nrequestdistribution=often", "w:2: requestdistribution=often: expected uniform"),
        ("fieldcount=0", "w:1: fieldcount=0: expected a whole number from 1"),
        ("readallfields=yes", "w:1: readallfields=yes: expected true or false"),
        ("scanlengthdistribution=latest", "expected uniform or zipfian"),
        ("fieldlengthdistribution=zipfian", "expected constant"),
        ("zipfianconstant=1", "expected a number above 0 and below 1"),
        ("fieldcount=2000\nfieldlength=1000", "expected at most 1 MiB"),
        ("readproportion=0\nupdateproportion=0", "all operation proportions are 0"),
        ("minscanlength=11\nmaxscanlength=10", "from 1 to 10"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(message), "{text:?} gave {error:?}");
    }
}

#[test]
fn the_largest_record_is_the_largest_item() {
    // The header of an item takes 59 bytes.
    for (properties, key_bytes) in [
        ("", 4 + 19),
        ("zeropadding=30", 4 + 30),
        ("insertorder=ordered\nrecordcount=90\noperationcount=10", 4 + 2),
        ("insertorder=ordered\nrecordcount=90\noperationcount=11", 4 + 3),
    ] {
        let bytes = (1 << 20) - 59 - key_bytes;
        let record = |bytes| parse(&format!("fieldcount=1\nfieldlength={bytes}\n{properties}"));
        assert_eq!(record(bytes).unwrap().0.record_bytes(), bytes, "{properties}");
        let error = record(bytes + 1).unwrap_err().to_string();
        assert!(error.contains(&format!("a key of {key_bytes} bytes")), "{error}");
    }
}

#[test]
fn unknown_properties_of_a_file_only_warn() {
    let (_, warnings) = parse("recordcuont=5").unwrap();
    assert_eq!(warnings, ["w:1: ignoring unknown property recordcuont"]);
}

#[test]
fn unknown_properties_of_the_command_line_are_errors() {
    let mut properties = Properties::parse("w", "").unwrap();
    properties.override_with("recordcuont=5").unwrap();
    let error = Workload::new("w", &properties).unwrap_err().to_string();
    assert!(error.starts_with("command line: unknown property recordcuont"), "{error}");
    assert!(error.contains(" recordcount, "), "the known properties are listed: {error}");
}
