//! Racks by their settings: which are refused, and which hosts find each other.

use std::error::Error;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use gossamer_transport_tcp::{Credentials, JoinError, TcpConfig, TcpTransport};
use transport_api::HostId;

use crate::attacked;
use crate::common::{Authority, BUILD, JOB, configs};

#[test]
fn a_rack_of_one_host_follows_another_with_the_same_listener() {
    let first = configs(1, 1, |_| Credentials::InsecureLoopback).remove(0);
    let mut second = configs(1, 1, |_| Credentials::InsecureLoopback).remove(0);
    second.listener = first.listener.try_clone().expect("another descriptor");
    for config in [first, second] {
        let joined = TcpTransport::join(config);
        assert!(joined.is_ok(), "{:?}", joined.err());
    }
}

#[test]
fn a_rack_without_credentials_stays_on_loopback() {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a listener");
    let addresses = vec!["127.0.0.1:1".parse().expect("an address")];
    let insecure = Credentials::InsecureLoopback;
    let open = TcpConfig::new((JOB, BUILD), HostId(0), addresses, listener, 1, insecure);
    assert!(matches!(TcpTransport::join(open), Err(JoinError::NotLoopback(_))));
    let mut away = configs(2, 1, |_| Credentials::InsecureLoopback).remove(0);
    away.addresses[1] = "192.0.2.1:1".parse().expect("an address");
    assert!(matches!(TcpTransport::join(away), Err(JoinError::NotLoopback(_))));
}

#[test]
fn invalid_settings_are_refused_with_reasons() {
    let one = || configs(1, 1, |_| Credentials::InsecureLoopback).remove(0);
    let refusal = |change: fn(&mut TcpConfig)| {
        let mut config = one();
        change(&mut config);
        TcpTransport::join(config).err().expect("a refusal").to_string()
    };
    assert!(refusal(|config| config.threads = 0).contains("1 hosts of 0 threads"));
    assert!(refusal(|config| config.addresses.clear()).contains("0 hosts of 1 threads"));
    assert!(refusal(|config| config.host = HostId(3)).contains("host 3 is not among"));
    assert!(refusal(|config| config.loss_bound = Duration::ZERO).contains("too short"));
    let (certificate, key, ca) = (String::new(), String::new(), String::new());
    let mut config = one();
    config.credentials = Credentials::Tls { certificate, key, ca };
    let refusal = TcpTransport::join(config).err().expect("a refusal");
    assert_eq!(refusal.to_string(), "cannot use the credentials of this host");
    let cause = refusal.source().expect("a cause").to_string();
    assert!(cause.contains("certificate"), "{cause}");
}

#[test]
fn a_bound_may_be_longer_than_the_kernel_can_count() {
    for bound in [Duration::from_hours(24 * 30), Duration::MAX] {
        let mut configs = configs(2, 1, |_| Credentials::InsecureLoopback);
        configs.iter_mut().for_each(|config| config.loss_bound = bound);
        attacked(configs, |_| ());
    }
}

#[test]
fn hosts_that_do_not_come_are_named() {
    let mut alone = configs(3, 1, |_| Credentials::InsecureLoopback).remove(1);
    alone.join_timeout = Duration::from_millis(200);
    let missing = TcpTransport::join(alone).err().expect("no rack").to_string();
    assert!(missing.contains("host 0, host 2"), "{missing}");
}

#[test]
fn a_host_that_comes_late_finds_those_that_have_waited() {
    let authority = Authority::new();
    let secure = configs(2, 1, |host| authority.of(host));
    let insecure = configs(2, 1, |_| Credentials::InsecureLoopback);
    for mut configs in [secure, insecure] {
        // Its listener is there before it is, and holds what was said to it meanwhile.
        configs[1].handshake_timeout = Duration::from_millis(200);
        let early = configs.pop().expect("a last host");
        let early = thread::spawn(|| TcpTransport::join(early));
        thread::sleep(Duration::from_millis(800));
        let late = configs.pop().map(TcpTransport::join).expect("a first host");
        let early = early.join().expect("no panic");
        assert!(late.is_ok() && early.is_ok(), "{:?}, {:?}", late.err(), early.err());
    }
}
