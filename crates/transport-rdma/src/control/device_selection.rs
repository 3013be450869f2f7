//! [`SelectedDevice`]: the device that this host uses, and its address.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use crate::error::advice;
use crate::verbs::{Capabilities, ConnectionParams, Device, Gid};
use crate::{RdmaConfig, RdmaError};
use rdma_protocol::Endpoint;

/// The opened device of this host, and its address.
pub(crate) struct SelectedDevice {
    pub(crate) device: Arc<Device>,
    pub(crate) gid: Gid,
    pub(crate) capabilities: Capabilities,
    lid: u16,
    mtu: u8,
}

/// A device that may be selected.
#[derive(Clone, Debug)]
struct Candidate {
    name: String,
    is_active: bool,
    gids: Vec<Gid>,
}

impl SelectedDevice {
    /// Selects the device by `config`, and opens it.
    pub(crate) fn select(config: &RdmaConfig) -> Result<SelectedDevice, RdmaError> {
        let names = Device::names()
            .map_err(|error| RdmaError::NoDevice(format!("cannot list RDMA devices: {error}")))?;
        let open = |name: &str| {
            let device = Device::open(name).map_err(|error| ("open", error))?;
            // The device has no such port.
            let Ok(port) = device.port(config.port) else { return Ok(None) };
            let gids = device.gids(config.port).map_err(|error| ("list its addresses", error))?;
            let candidate = Candidate { name: name.to_owned(), is_active: port.is_active, gids };
            Ok(Some(((device, port), candidate)))
        };
        let ((device, port), gid) = select_among(config, &names, open)?;
        let name = device.name().to_owned();
        let capabilities = device
            .capabilities()
            .map_err(|error| refused(&name, "report its capabilities", error))?;
        let unsuitable = |reason: String| RdmaError::Unsuitable { device: name.clone(), reason };
        if !capabilities.has_atomics
            || capabilities.initiator_depth == 0
            || capabilities.responder_resources == 0
        {
            return Err(unsuitable("it supports no atomics or no READs".into()));
        }
        if config.depth > capabilities.max_work_requests {
            let most = capabilities.max_work_requests;
            let text =
                format!("a queue holds at most {most} work requests, depth is {}", config.depth);
            return Err(unsuitable(text));
        }
        tracing::debug!(device = %name, address = %gid.address(), "selected RDMA device");
        Ok(SelectedDevice { device, gid, capabilities, lid: port.lid, mtu: port.mtu })
    }

    /// The address of queue pair `qp` of this device, which begins with packet number `first`.
    pub(crate) fn endpoint(&self, qp: u32, first: u32) -> Endpoint {
        Endpoint { gid: self.gid.bytes, lid: self.lid, mtu: self.mtu, qp, first }
    }

    /// The parameters of a queue pair whose peer serves `responder_resources` READs and atomics at a
    /// time.
    pub(crate) fn params(&self, config: &RdmaConfig, responder_resources: u8) -> ConnectionParams {
        /// READs and atomics of one lane in flight; more gain nothing.
        const ENOUGH: u8 = 16;
        ConnectionParams {
            timeout: config.timeout_exponent,
            retries: config.retries,
            rnr_timer: config.rnr_timer,
            initiator_depth: self.capabilities.initiator_depth.min(responder_resources).min(ENOUGH),
            responder_resources: self.responder_resources(),
        }
    }

    /// READs and atomics that a queue pair of this device serves at a time.
    pub(crate) fn responder_resources(&self) -> u8 {
        self.capabilities.responder_resources
    }
}

pub(crate) fn refused(device: &str, operation: &'static str, source: io::Error) -> RdmaError {
    RdmaError::Refused { device: device.to_owned(), operation, source }
}

/// A device that cannot be used: what it was asked to do, and the error of the system.
type Refusal = (&'static str, io::Error);

/// The device to use, of all devices `names`, and the address to send from. `open` opens one, unless it
/// does not have the port; a device that it cannot open is skipped, unless `config` names it.
fn select_among<D>(
    config: &RdmaConfig,
    names: &[String],
    open: impl Fn(&str) -> Result<Option<(D, Candidate)>, Refusal>,
) -> Result<(D, Gid), RdmaError> {
    let (mut devices, mut candidates, mut found) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_any_skipped = false;
    for name in names {
        if config.device.as_ref().is_some_and(|device| device != name) {
            found.push(name.clone());
            continue;
        }
        found.push(match open(name) {
            Ok(Some((device, candidate))) => {
                devices.push(device);
                candidates.push(candidate);
                name.clone()
            }
            Ok(None) => name.clone(),
            Err((operation, source)) if config.device.is_some() => {
                return Err(refused(name, operation, source));
            }
            // Another may do.
            Err((operation, error)) => {
                tracing::warn!(device = %name, operation, %error, "skipped an RDMA device");
                is_any_skipped = true;
                format!("{name} (cannot {operation}: {error}{})", advice(&error))
            }
        });
    }
    let found = match &found[..] {
        [] => "found none".to_owned(),
        _ => format!("found: {}", found.join(", ")),
    };
    if let Some(device) = config.device.as_ref().filter(|device| !names.contains(device)) {
        let text = format!("no RDMA device {device} on this machine ({found})");
        return Err(RdmaError::NoDevice(text));
    }
    let chosen = choose(config, (&found, is_any_skipped), &candidates);
    let (index, gid) = chosen.map_err(RdmaError::NoDevice)?;
    Ok((devices.swap_remove(index), gid))
}

/// The index of the device to use, and the address to send from; `found` tells which devices there are,
/// and whether any was skipped, which may be the one with the address of this host.
fn choose(
    config: &RdmaConfig,
    (found, is_any_skipped): (&str, bool),
    candidates: &[Candidate],
) -> Result<(usize, Gid), String> {
    let active = |(_, candidate): &(usize, &Candidate)| candidate.is_active;
    let active: Vec<_> = candidates.iter().enumerate().filter(active).collect();
    let has_address = |gid: &&Gid| {
        let is_own = |address: IpAddr| address.to_canonical() == gid.address();
        gid.is_routable && config.host_address.is_some_and(is_own)
    };
    let with_address =
        active.iter().find(|(_, candidate)| candidate.gids.iter().any(|g| has_address(&g)));
    let may_be_another = is_any_skipped && config.host_address.is_some();
    let (index, candidate) = match (with_address, &active[..]) {
        (Some(found), _) => *found,
        (None, [found]) if !may_be_another => *found,
        (None, []) => {
            return Err(format!("no RDMA device with an active port {} ({found})", config.port));
        }
        (None, several) => {
            let names: Vec<_> = several.iter().map(|(_, candidate)| &candidate.name[..]).collect();
            let active = format!("found: {}", names.join(", "));
            let found = if is_any_skipped { found } else { &active };
            let address = config.host_address.map_or("an address".into(), |own| own.to_string());
            return Err(format!(
                "no RDMA device has {address} of this host ({found}): name the device to use"
            ));
        }
    };
    let gids = &candidate.gids;
    let gid = match config.gid_index {
        Some(index) => gids.iter().find(|gid| gid.index == index),
        None => gids
            .iter()
            .find(has_address)
            .or_else(|| gids.iter().find(|g| g.is_routable && g.address().is_ipv4()))
            .or_else(|| gids.iter().find(|g| g.is_routable && g.is_global()))
            .or_else(|| gids.iter().find(|g| g.is_routable || g.is_infiniband)),
    };
    let Some(gid) = gid else {
        let which = match config.gid_index {
            Some(index) => format!("GID {index}"),
            None => "GID of RoCE version 2 or InfiniBand".into(),
        };
        return Err(format!(
            "RDMA device {} has no {which} at port {}",
            candidate.name, config.port
        ));
    };
    Ok((index, *gid))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn gid(index: u8, address: &str, is_routable: bool) -> Gid {
        let bytes = match address.parse().expect("an address") {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        Gid { index, bytes, is_routable, is_infiniband: false }
    }

    /// A device as Soft-RoCE shows it: the link-local address first, each in two versions.
    fn rxe(name: &str, host: u8) -> Candidate {
        let v4 = format!("10.77.0.{host}");
        let gids = vec![
            gid(0, &format!("fe80::{host}"), true),
            gid(1, &v4, false),
            gid(2, &v4, true),
            gid(3, &format!("fd00::{host}"), true),
        ];
        Candidate { name: name.into(), is_active: true, gids }
    }

    /// The number of the selected device among `candidates`, and the index of its address, if those can
    /// all be opened but for `locked`.
    fn chosen_but(
        locked: &str,
        config: &RdmaConfig,
        candidates: &[Candidate],
    ) -> Result<(usize, u8), RdmaError> {
        let names: Vec<_> = candidates.iter().map(|c| c.name.clone()).collect();
        let open = |name: &str| {
            if name == locked {
                return Err(("open", io::Error::from_raw_os_error(13)));
            }
            let index = names.iter().position(|other| other == name).expect("one of them");
            Ok(Some((index, candidates[index].clone())))
        };
        select_among(config, &names, open).map(|(index, gid)| (index, gid.index))
    }

    fn chosen(config: &RdmaConfig, candidates: &[Candidate]) -> Result<(usize, u8), String> {
        chosen_but("", config, candidates).map_err(|error| match error {
            RdmaError::NoDevice(text) => text,
            other => panic!("{other}"),
        })
    }

    #[test]
    fn the_only_active_device_is_chosen_with_its_ipv4_address() {
        let (mut down, up) = (rxe("rxe0", 1), rxe("rxe1", 2));
        down.is_active = false;
        assert_eq!(chosen(&RdmaConfig::default(), &[down, up]), Ok((1, 2)));
    }

    #[test]
    fn among_several_the_address_of_the_host_decides() {
        let two = [rxe("rxe0", 1), rxe("rxe1", 2)];
        let config = |own| RdmaConfig { host_address: Some(own), ..Default::default() };
        assert_eq!(chosen(&config(Ipv4Addr::new(10, 77, 0, 2).into()), &two), Ok((1, 2)));
        let six = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
        assert_eq!(chosen(&config(six.into()), &two), Ok((0, 3)));
        let elsewhere = chosen(&config(Ipv4Addr::LOCALHOST.into()), &two).unwrap_err();
        assert!(
            elsewhere.contains("no RDMA device has 127.0.0.1 of this host (found: rxe0, rxe1)"),
            "{elsewhere}"
        );
    }

    #[test]
    fn a_missing_device_or_address_is_named() {
        let named = RdmaConfig { device: Some("mlx5_0".into()), ..Default::default() };
        let refused = chosen(&named, &[rxe("rxe0", 1)]).unwrap_err();
        assert_eq!(refused, "no RDMA device mlx5_0 on this machine (found: rxe0)");
        assert!(chosen(&RdmaConfig::default(), &[]).unwrap_err().contains("found none"));
        let numbered = RdmaConfig { gid_index: Some(9), ..Default::default() };
        let refused = chosen(&numbered, &[rxe("rxe0", 1)]).unwrap_err();
        assert!(refused.contains("rxe0 has no GID 9"), "{refused}");
    }

    #[test]
    fn a_device_that_cannot_be_opened_is_skipped_unless_it_is_named() {
        let (locked, other) = (rxe("rxe0", 1), rxe("rxe1", 2));
        let both = [locked.clone(), other];
        let any = RdmaConfig::default();
        assert!(matches!(chosen_but("rxe0", &any, &both), Ok((1, 2))));
        let own = RdmaConfig { host_address: Some([10, 0, 9, 9].into()), ..Default::default() };
        let refused = chosen_but("rxe0", &own, &both).expect_err("it may have the address");
        let text = refused.to_string();
        assert!(
            text.contains("no RDMA device has 10.0.9.9 of this host (found: rxe0 (cannot"),
            "{text}"
        );
        let named = RdmaConfig { device: Some("rxe0".into()), ..Default::default() };
        let refused = chosen_but("rxe0", &named, &both).expect_err("no other is meant");
        assert!(matches!(refused, RdmaError::Refused { operation: "open", .. }), "{refused}");
        let refused = chosen_but("rxe0", &any, &[locked]).expect_err("there is no other");
        let text = refused.to_string();
        let why = "(found: rxe0 (cannot open: Permission denied (os error 13); check";
        assert!(text.contains(why), "{text}");
    }
}
