//! Signed packages in a running job of two daemons: `gossamer jam send` brings them in, a peer sends
//! jams of them, and what is not signed by a signer of the rack runs nowhere.

mod common;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;
use std::{env, fs};

use common::calls::{as_member, ask, call, member};
use common::{Rack, Ran, eventually, finish, send};
use daemon_protocol::{Answer, PackagePart, Request};
use gossamer::jam::{self, Inject, LoadedJam, Package, Policy, receiver};
use gossamer_daemon::controller::call::Caller;
use gossamer_daemon::security::identity::Identity;
use gossamer_job::JobId;
use jam_format::{Algorithm, Signature, sign_package};
use rustls::SignatureScheme;

/// What jams work on.
struct Shop {
    base: u64,
}

jam::open! {
    Shop = "jam-send.Shop@1";
}

jam::property! {
    /// The shop, as a jam's types name it.
    struct ShopOfJams = "jam-send.Shop@1";
}

jam::export! {
    /// The price of an article.
    fn base_price(shop: &mut Shop, article: u64) -> u64 {
        shop.base + article
    }
}

const JAM: &str = "jam::property! { pub struct Shop = \"jam-send.Shop@1\"; }\n\
                   jam::import! { fn base_price(shop: &mut Shop, article: u64) -> u64; }\n\
                   pub fn NAME(shop: &mut Shop, article: u64) -> u64 {\n\
                   \x20   base_price(shop, article) * FACTOR\n\
                   }\n";

/// A ried of the package with prices, and a jam that calls it.
const DISCOUNT: &str = "#include \"jam.h\"\n\
                        JAM_PROPERTY(shop, \"jam-send.Shop@1\");\n\
                        RIED_EXPORT(uint64_t, discounted, (shop *, uint64_t));\n\
                        uint64_t discounted(shop *shop, uint64_t price) { return price - 100; }\n";
const CHEAP: &str = "jam::property! { pub struct Shop = \"jam-send.Shop@1\"; }\n\
                     jam::import! { fn discounted(shop: &mut Shop, price: u64) -> u64; }\n\
                     pub fn cheap(shop: &mut Shop, price: u64) -> u64 { discounted(shop, price) }\n";

type Price = LoadedJam<&'static mut ShopOfJams, u64, (), u64>;

const PLACE: &str = "JAM_SEND_PLACE";
const NO_JAMS: &str = "JAM_SEND_NO_JAMS";
const REVOKES: &str = "JAM_SEND_REVOKES";
/// What a peer sends without `jam send`; only the first is admitted.
const SENT_BY_PEER: [&str; 6] =
    ["signed", "unsigned", "forged", "other-job", "by-admin", "by-revoked"];

#[test]
#[ignore = "this is what the processes of the other tests' jobs run"]
fn task() {
    let Some(place) = env::var_os(PLACE).map(PathBuf::from) else { return };
    if env::var_os(NO_JAMS).is_some() {
        receiver().set_policy(Policy::Nothing);
    }
    jam::on_package(|package| {
        println!("told of {} by {}", package.name(), package.signer());
    });
    gossamer::Rack::from_args().unwrap().run(move || main(&place)).unwrap();
}

/// Waits until `is_there`, as a fiber.
fn wait_until(is_there: impl Fn() -> bool) {
    while !is_there() {
        gossamer::sleep(Duration::from_millis(20));
    }
}

/// Loads the ried of the package that was brought in into host 1, and calls it.
fn load_discount() -> (gossamer::Trust<Shop>, Price, jam::RemoteRied) {
    let package = &jam::packages()[0];
    assert_eq!(package.rieds().collect::<Vec<_>>(), ["discount"]);
    let there = gossamer::trustees().nth(1).unwrap();
    let shop = there.entrust_with(|()| Shop { base: 100 }, ());
    let cheap: Price = package.find("cheap").unwrap();
    println!("without: {}", shop.inject(&cheap, 735, &[]).unwrap_err().source().unwrap());
    let discount = jam::load_ried(there, &package.ried("discount").unwrap()).unwrap();
    println!("discounted: {}", shop.inject(&cheap, 735, &[]).unwrap());
    (shop, cheap, discount)
}

/// Calls a jam before and after its signer is revoked.
fn use_until_revoked(place: &Path, shop: &gossamer::Trust<Shop>) {
    fs::write(place.join("ready"), "").unwrap();
    wait_until(|| !jam::packages().is_empty());
    let price: Price = jam::packages()[0].find("price").unwrap();
    println!("before: {}", shop.inject(&price, 5, &[]).unwrap());
    let (there, cheap, discount) = load_discount();
    fs::write(place.join("used"), "").unwrap();
    wait_until(|| jam::packages().is_empty());
    let error = shop.inject(&price, 5, &[]).unwrap_err();
    println!("after: {}", error.source().unwrap());
    // The other process learns of it by itself.
    wait_until(|| there.inject(&cheap, 735, &[]).is_err());
    let error = discount.unload().unwrap_err();
    println!("ried after: {}", error.source().unwrap());
    // The job is there until the test has sent the package once more.
    wait_until(|| place.join("go").exists());
}

/// Sends what the test has put into `place`, and later calls what was brought into the job.
fn main(place: &Path) {
    let shops: Vec<_> = gossamer::trustees()
        .map(|trustee| trustee.entrust_with(|()| Shop { base: 100 }, ()))
        .collect();
    if env::var_os(REVOKES).is_some() {
        return use_until_revoked(place, &shops[0]);
    }
    if env::var_os(NO_JAMS).is_none() {
        for name in SENT_BY_PEER {
            let bytes = fs::read(place.join(format!("{name}.jampkg"))).unwrap();
            // A receiver that has admitted a jam takes it from everyone: the admitted one is last.
            let rebate: Price = Package::parse(&bytes).unwrap().find(jam_of(name)).unwrap();
            for (host, shop) in shops.iter().enumerate() {
                match shop.inject(&rebate, 5, &[]) {
                    Ok(rebate) => println!("{name} at {host}: {rebate}"),
                    Err(error) => println!("{name} at {host}: {}", error.source().unwrap()),
                }
            }
        }
    }
    fs::write(place.join("ready"), "").unwrap();
    wait_until(|| place.join("go").exists());
    for package in jam::packages() {
        let price: Price = package.find("price").unwrap();
        let wrong: Result<LoadedJam<(), u64, (), u64>, _> = package.find("price");
        assert!(wrong.is_err() && package.find::<(), u64, (), u64>("nothing").is_err());
        for (host, shop) in shops.iter().enumerate() {
            let paid = shop.inject(&price, 5, &[]).unwrap();
            println!("{} of {} at {host}: {paid}", package.name(), package.signer());
        }
    }
}

/// The jam in a package that a peer sends: each its own, since a digest that is admitted stays so.
fn jam_of(package: &str) -> &'static str {
    match package {
        "signed" => "rebate",
        _ => "surcharge",
    }
}

/// Builds a package of one jam, which multiplies prices.
fn build(rack: &Rack, package: &str, jam: &str, factor: u64) -> Vec<u8> {
    let source = JAM.replace("NAME", jam).replace("FACTOR", &factor.to_string());
    build_of(rack, package, &[(&format!("{jam}.rs"), &source)])
}

/// Builds a package of these files.
fn build_of(rack: &Rack, package: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join(package);
    for (file, source) in files {
        let file = place.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, source).unwrap();
    }
    let output = rack.place.path().join(format!("built-{package}.jampkg"));
    let built = Command::new(env!("CARGO_BIN_EXE_gossamer"))
        .args(["jam", "build"])
        .arg(&place)
        .arg("--output")
        .arg(&output)
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    fs::read(output).unwrap()
}

/// A rack of two hosts with signers: ann, and bob, who is revoked.
fn rack() -> Rack {
    let rack = Rack::new(&["a", "b"]);
    rack.join("ann", "signer");
    rack.join("bob", "signer");
    revoke(&rack, "bob");
    rack
}

/// Revokes a member's certificate, and brings the list to the daemons.
fn revoke(rack: &Rack, name: &str) {
    let dir = rack.path("rack");
    let revoked = rack.gossamer(&["rack", "revoke", "--dir", &dir, name]).output().unwrap();
    assert!(revoked.status.success(), "{revoked:?}");
    let list = fs::read(rack.path("rack/ca/revoked.pem")).unwrap();
    for host in ["a", "b"] {
        // Complete at any time: a daemon may read it now.
        let (part, path) = (rack.path("list.part"), format!("rack/{host}/revoked.pem"));
        fs::write(&part, &list).unwrap();
        fs::rename(&part, rack.path(&path)).unwrap();
    }
}

/// Writes a package for the processes and commands of the rack.
fn put(rack: &Rack, name: &str, package: &[u8]) -> String {
    let path = rack.path(&format!("{name}.jampkg"));
    fs::write(&path, package).unwrap();
    path
}

/// Signs by `gossamer jam sign`.
fn signed(rack: &Rack, name: &str, package: &[u8], by: &str, job: Option<&str>) -> String {
    let (from, to) = (put(rack, &format!("{name}-from"), package), rack.path(name) + ".jampkg");
    let identity = rack.path(&format!("rack/{by}"));
    let mut sign = vec!["jam", "sign", "--identity", &identity, "--output", &to, &from];
    if let Some(job) = job {
        sign.extend(["--job", job]);
    }
    let output = rack.gossamer(&sign).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let shown = rack.gossamer(&["jam", "inspect", &to]).output().unwrap();
    let text = String::from_utf8_lossy(&shown.stdout);
    let job = job.map_or("every job".to_owned(), |job| format!("job {job}"));
    let (signer, with) = (format!("  signed by signer {by} of rack "), " with Ed25519, for ");
    let line = text.lines().find(|line| line.starts_with(&signer) && line.contains(with));
    let end = format!("{job} (not verified)");
    assert!(line.is_some_and(|line| line.ends_with(&end)), "{text}");
    let admin = rack.path("rack/admin");
    let verified = rack.gossamer(&["jam", "inspect", "--identity", &admin, &to]).output().unwrap();
    if by == "bob" {
        let error = String::from_utf8_lossy(&verified.stderr);
        assert!(!verified.status.success() && error.contains("bob was revoked"), "{verified:?}");
    } else {
        let same = text.replace("(not verified)", "(verified)");
        assert_eq!(String::from_utf8_lossy(&verified.stdout), same);
    }
    to
}

/// Signs with the key of a member who may not, as no command does.
fn signed_by_other_role(identity: &Identity, package: &[u8]) -> Vec<u8> {
    let package = jam_format::Package::parse(package).unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&identity.key).unwrap();
    let signer = key.choose_scheme(&[SignatureScheme::ED25519]).unwrap();
    let signature = signer.sign(&package.signed_message(None)).unwrap();
    let block = Signature {
        algorithm: Algorithm::Ed25519,
        job: None,
        certificate: &identity.certificate,
        signature: &signature,
    };
    sign_package(&package, &block.encode().unwrap()).unwrap()
}

/// Puts a package in each wrong form into the rack's directory.
fn put_wrong(rack: &Rack, package: &[u8]) {
    put(rack, "unsigned", package);
    let good = fs::read(signed(rack, "good", package, "ann", None)).unwrap();
    let mut forged = good.clone();
    // A byte of its own name: the digests of the elements are as they were.
    let name = forged.windows(9).position(|name| name == b"surcharge").unwrap();
    forged[name] ^= 1;
    put(rack, "forged", &forged);
    put(rack, "truncated", &good[..good.len() - 10]);
    let other = "0".repeat(31) + "1";
    signed(rack, "other-job", package, "ann", Some(&other));
    signed(rack, "by-revoked", package, "bob", None);
    put(rack, "by-admin", &signed_by_other_role(&member(rack, "admin"), package));
}

/// Starts a job of this program on both hosts, and waits until its `main` has sent what it sends.
/// Returns its number, too.
fn start(rack: &Rack, more: &[&str]) -> (Child, String) {
    let program = rack.path("program");
    // What only a debugger reads is most of it.
    let mut strip = Command::new("strip");
    let stripped = strip.args(["-o", &program]).arg(env::current_exe().unwrap()).status();
    assert!(stripped.is_ok_and(|status| status.success()), "no strip: apt-get install binutils");
    let place = format!("{PLACE}={}", rack.place.path().display());
    let tag = format!("TEST_TAG={}", rack.tag);
    let mut job = rack.gossamer(&["run", "--hosts", "a,b", "--env", &place, "--env", &tag]);
    // Daemons and jobs share two cores with other tests.
    job.args(more).args(["--threads", "1", "--loss-bound", "60000", "--", &program]);
    let mut job = job.args(["task", "--exact", "--ignored", "--nocapture"]).spawn().unwrap();
    let ready = rack.place.path().join("ready");
    eventually("the program is ready", || {
        assert_eq!(job.try_wait().unwrap(), None, "the job has ended");
        ready.exists().then_some(())
    });
    let jobs = rack.gossamer(&["ps", "--json"]).output().unwrap();
    let jobs: serde_json::Value = serde_json::from_slice(&jobs.stdout).unwrap();
    (job, jobs[0]["job"].as_str().unwrap().to_owned())
}

fn send_package(rack: &Rack, job: &str, package: &str) -> Ran {
    Ran::from(rack.gossamer(&["jam", "send", job, package]).output().unwrap())
}

/// A daemon receives as many bytes as were announced, if those are not too many.
async fn lengths_are_kept(rack: &Rack, job: JobId) {
    let request = |bytes| Request::Package { job, bytes };
    for bytes in [0, (64 << 20) + 1, u64::MAX] {
        let answer = ask(rack, as_member(rack, "admin"), &request(bytes)).await;
        let Ok(Answer::Refused(reason)) = answer else { panic!("{bytes}: {answer:?}") };
        assert!(reason.contains("expected 1 to"), "{reason}");
    }
    for part in [0, 11] {
        let (answer, (mut from, mut to)) =
            call(rack, as_member(rack, "admin"), &request(10)).await.unwrap();
        assert_eq!(answer, Answer::SendPackage);
        to.send(&PackagePart(vec![0; part])).await.unwrap();
        let answer = from.receive::<Answer>(common::calls::TIMEOUT).await;
        assert!(answer.is_err(), "the connection is closed: {answer:?}");
    }
}

#[test]
fn a_package_comes_into_a_running_job_and_only_if_a_signer_has_signed_it() {
    let rack = rack();
    put_wrong(&rack, &build(&rack, "surcharges", "surcharge", 3));
    signed(&rack, "signed", &build(&rack, "rebates", "rebate", 2), "ann", None);
    let (job, number) = start(&rack, &[]);

    // What each wrong package is told, from a command and from a peer.
    let refusals = [
        ("unsigned", "is not signed", "sign the package"),
        ("forged", "is forged, or the package was changed", "is forged, or the package was"),
        ("other-job", "only, this is job", "only, this is job"),
        ("by-admin", "whose role is admin: only a signer", "whose role is admin: only a signer"),
        ("by-revoked", "of its signer bob was revoked", "of its signer bob was revoked"),
        ("truncated", "package of ", ""),
    ];
    for (name, reason, _) in refusals {
        let ran = send_package(&rack, &number, &rack.path(&format!("{name}.jampkg")));
        assert!(ran.status != Some(0) && ran.err.contains(reason), "{name}: {ran:?}");
        assert!(ran.err.lines().all(|line| line.matches(reason).count() < 2), "{name}: {ran:?}");
        assert_eq!(ran.out, "", "{name}");
    }
    // The daemon looks at the bytes, too.
    let caller = Caller::new(&member(&rack, "admin")).unwrap();
    let truncated = fs::read(rack.path("truncated.jampkg")).unwrap();
    let id = number.parse().unwrap();
    let refused = common::calls::runtime().block_on(async {
        caller.send_package(&"a".parse().unwrap(), id, &truncated, |_, _| ()).await
    });
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("refused: package of "), "{refused}");
    common::calls::runtime().block_on(lengths_are_kept(&rack, id));

    // It is signed for this very job, and brought in twice: the second replaces the first.
    let prices = build(&rack, "prices", "price", 7);
    let prices = signed(&rack, "prices", &prices, "ann", Some(&number));
    for _ in 0..2 {
        let ran = send_package(&rack, &number, &prices);
        let expected = "a: took package prices, signed by ann\n\
                        b: took package prices, signed by ann\n";
        assert_eq!((ran.status, ran.out.as_str()), (Some(0), expected), "{ran:?}");
    }
    rack.add_viewer();
    let mut viewer = rack.gossamer(&["jam", "send", &number, &prices]);
    viewer.env("GOSSAMER_IDENTITY", rack.path("rack/viewer"));
    let ran = Ran::from(viewer.output().unwrap());
    assert!(ran.err.contains("the viewer viewer may not send a package"), "{ran:?}");
    let mut signer = rack.gossamer(&["jam", "send", &number, &prices]);
    signer.env("GOSSAMER_IDENTITY", rack.path("rack/ann"));
    let ran = Ran::from(signer.output().unwrap());
    assert!(ran.err.contains("signer ann, which may not call daemons"), "{ran:?}");
    let ran = send_package(&rack, &"0".repeat(32), &prices);
    assert!(ran.err.contains("runs on the hosts that answered"), "{ran:?}");

    fs::write(rack.path("go"), "").unwrap();
    let ran = finish(job);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    for host in 0..2 {
        for line in
            [format!("[a] signed at {host}: 210\n"), format!("[a] prices of ann at {host}: 735\n")]
        {
            assert_eq!(ran.out.matches(&line).count(), 1, "{line:?} in {ran:?}");
        }
        let at = |name| format!("[a] {name} at {host}: its code is not admitted: ");
        for (name, _, reason) in refusals.iter().filter(|(.., reason)| !reason.is_empty()) {
            let line = ran.out.lines().find(|line| line.starts_with(&at(name)));
            assert!(line.is_some_and(|line| line.contains(reason)), "{name} in {ran:?}");
        }
        let told = format!("[{}] told of prices by ann\n", ["a", "b"][host]);
        assert_eq!(ran.out.matches(&told).count(), 2, "{ran:?}");
    }
    assert_eq!(ran.out.matches("surcharge").count(), 0, "{ran:?}");
    for number in 0..2 {
        let log = fs::read_to_string(rack.log_file(number)).unwrap();
        let line = |parts: &[&str]| {
            let has_all = |line: &&str| parts.iter().all(|part| line.contains(part));
            assert!(log.lines().any(|line| has_all(&line)), "no line with {parts:?} in {log}");
        };
        line(&["gossamer_audit", "brings a package into a job", "by=admin", "prices", "ann"]);
        line(&["gossamer_audit", "a process took the package"]);
        line(&[
            "gossamer_audit",
            "runs for the first time",
            "\"price\"",
            "signed by ann",
            "host=0",
        ]);
        line(&["gossamer_audit", "runs for the first time", "\"rebate\"", "signed by ann"]);
        line(&["gossamer_audit", "refused a package", "by=admin", "bob was revoked"]);
        assert!(!log.contains("\"surcharge\""), "{log}");
    }
    rack.assert_nothing_left();
}

#[test]
fn a_revocation_reaches_jobs_that_run() {
    let rack = rack();
    let (job, number) = start(&rack, &["--env", &format!("{REVOKES}=1")]);
    let price = JAM.replace("NAME", "price").replace("FACTOR", "7");
    let files = [("price.rs", &*price), ("cheap.rs", CHEAP), ("discount/discount.c", DISCOUNT)];
    let prices = signed(&rack, "prices", &build_of(&rack, "prices", &files), "ann", None);
    assert_eq!(send_package(&rack, &number, &prices).status, Some(0));
    let used = rack.place.path().join("used");
    eventually("the jam has run", || used.exists().then_some(()));
    revoke(&rack, "ann");
    // The ried was loaded into the process of b, by host 0, and the revocation unloads it there,
    // although no member calls the daemons.
    let entries = |host| {
        let log = fs::read_to_string(rack.log_file(host)).unwrap();
        let entries = log
            .lines()
            .filter(|line| line.contains("gossamer_audit") && line.contains("ried=\"discount\""));
        entries.map(str::to_owned).collect::<Vec<_>>()
    };
    let found = eventually("the ried is unloaded", || {
        let found = entries(1);
        (found.len() == 3).then_some(found)
    });
    let expected = ["a ried runs for the first time", "a ried is loaded", "a ried is unloaded"];
    for (line, event) in found.iter().zip(expected) {
        // No host had it unloaded.
        let by_host = line.contains("host=0") == (event != expected[2]);
        assert!(by_host && line.contains(event) && line.contains("signed by ann"), "{line}");
    }
    assert_eq!(entries(0), [""; 0]);
    let ran = send_package(&rack, &number, &prices);
    assert!(ran.err.contains("of its signer ann was revoked"), "{ran:?}");
    fs::write(rack.path("go"), "").unwrap();
    let ran = finish(job);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.out.contains("[a] before: 735\n"), "{ran:?}");
    let refused =
        "[a] after: its code is not admitted: the certificate of its signer ann was revoked";
    assert!(ran.out.contains(refused), "{ran:?}");
    for line in [
        "[a] without: no function ",
        "[a] discounted: 635\n",
        "[a] ried after: its code is not admitted: ",
    ] {
        assert!(ran.out.contains(line), "{line:?} in {ran:?}");
    }
    rack.assert_nothing_left();
}

#[test]
fn a_process_may_refuse_what_its_daemon_brings() {
    let rack = rack();
    let (job, number) = start(&rack, &["--env", &format!("{NO_JAMS}=1")]);
    let prices = signed(&rack, "prices", &build(&rack, "prices", "price", 7), "ann", None);
    let ran = send_package(&rack, &number, &prices);
    assert_eq!((ran.status, ran.out.as_str()), (Some(1), ""), "{ran:?}");
    for host in ["a", "b"] {
        let reason =
            format!("{host}: refused package prices: its code is not admitted: this host runs");
        assert!(ran.err.contains(&reason), "{ran:?}");
    }
    for number in 0..2 {
        let log = fs::read_to_string(rack.log_file(number)).unwrap();
        let is_entry = |line: &str| {
            let parts =
                ["gossamer_audit", "a process refused the package", "its policy is `Nothing`"];
            parts.iter().all(|part| line.contains(part))
        };
        assert!(log.lines().any(is_entry), "{log}");
    }
    send(job.id(), "INT");
    finish(job);
    rack.assert_nothing_left();
}
