//! [`Place`]: which device this host uses, and where on the network that is.

use crate::{
    RdmaConfig, RdmaError,
    verbs::{Abilities, Device, Endpoint, Gid, Timing},
};
use std::{io, sync::Arc};

/// The device of this host, opened, and where it is.
pub(crate) struct Place {
    pub(crate) device: Arc<Device>,
    pub(crate) gid: Gid,
    pub(crate) abilities: Abilities,
    lid: u16,
    mtu: u8,
}

/// A device that could be used.
#[derive(Clone, Debug)]
struct Candidate {
    name: String,
    is_active: bool,
    gids: Vec<Gid>,
}

impl Place {
    /// Opens the device that `config` asks for.
    pub(crate) fn find(config: &RdmaConfig) -> Result<Place, RdmaError> {
        let names = Device::names()
            .map_err(|error| RdmaError::NoDevice(format!("the system lists none: {error}")))?;
        let wanted = |name: &String| config.device.as_ref().is_none_or(|device| device == name);
        let (mut devices, mut candidates) = (Vec::new(), Vec::new());
        for name in names.iter().filter(|name| wanted(name)) {
            let refused = |what| move |source| refused(name, what, source);
            let device = Device::open(name).map_err(refused("be opened"))?;
            // A port that the device does not have is not one to use.
            let Ok(port) = device.port(config.port) else { continue };
            let gids = device.gids(config.port).map_err(refused("tell its addresses"))?;
            let (name, is_active) = (name.clone(), port.is_active);
            candidates.push(Candidate { name, is_active, gids });
            devices.push((device, port));
        }
        let (index, gid) = choose(config, &names, &candidates).map_err(RdmaError::NoDevice)?;
        let (device, port) = devices.swap_remove(index);
        let name = device.name().to_owned();
        let abilities =
            device.abilities().map_err(|error| refused(&name, "say what it can do", error))?;
        let unfit = |reason: String| RdmaError::Unfit { device: name.clone(), reason };
        if !abilities.has_atomics || abilities.asking == 0 || abilities.answering == 0 {
            return Err(unfit("it has no atomics or no READs".into()));
        }
        if config.depth > abilities.works {
            let most = abilities.works;
            return Err(unfit(format!("it holds {most} work requests, not {}", config.depth)));
        }
        tracing::debug!(device = %name, address = %gid.address(), "uses an RDMA device");
        Ok(Place { device, gid, abilities, lid: port.lid, mtu: port.mtu })
    }

    /// The end of a connection that is queue pair `qp` of this device.
    pub(crate) fn endpoint(&self, qp: u32, first: u32) -> Endpoint {
        Endpoint { gid: self.gid.bytes, lid: self.lid, mtu: self.mtu, qp, first }
    }

    /// How patient a queue pair is towards a peer that answers so many READs and atomics at a time.
    pub(crate) fn timing(&self, config: &RdmaConfig, answering: u8) -> Timing {
        /// READs and atomics of one lane under way; more gain nothing.
        const ENOUGH: u8 = 16;
        Timing {
            timeout: config.timeout_exponent,
            retries: config.retries,
            wait: config.wait_code,
            asking: self.abilities.asking.min(answering).min(ENOUGH),
            answering: self.answering(),
        }
    }

    /// READs and atomics that a queue pair of this device answers at a time.
    pub(crate) fn answering(&self) -> u8 {
        self.abilities.answering
    }
}

pub(crate) fn refused(device: &str, what: &'static str, source: io::Error) -> RdmaError {
    RdmaError::Refused { device: device.to_owned(), what, source }
}

/// The candidate to use and the address to send from; `names` are those of all devices.
fn choose(
    config: &RdmaConfig,
    names: &[String],
    candidates: &[Candidate],
) -> Result<(usize, Gid), String> {
    let there = || match names {
        [] => "this machine has none".to_owned(),
        _ => format!("this machine has {}", names.join(", ")),
    };
    if let Some(device) = &config.device
        && !names.contains(device)
    {
        return Err(format!("there is no device {device}: {}", there()));
    }
    let active = |(_, candidate): &(usize, &Candidate)| candidate.is_active;
    let active: Vec<_> = candidates.iter().enumerate().filter(active).collect();
    let near = |gid: &&Gid| {
        gid.is_routable && config.near.is_some_and(|near| near.to_canonical() == gid.address())
    };
    let with_near = active.iter().find(|(_, candidate)| candidate.gids.iter().any(|g| near(&g)));
    let (index, candidate) = match (with_near, &active[..]) {
        (Some(found), _) | (None, [found]) => *found,
        (None, []) => {
            return Err(format!("no device with an active port {}: {}", config.port, there()));
        }
        (None, several) => {
            let names: Vec<_> = several.iter().map(|(_, candidate)| &candidate.name[..]).collect();
            let near = config.near.map_or("an address".into(), |near| near.to_string());
            return Err(format!(
                "of {} none has {near} of this host: name the one to use",
                names.join(", ")
            ));
        }
    };
    let gids = &candidate.gids;
    let gid = match config.gid_index {
        Some(index) => gids.iter().find(|gid| gid.index == index),
        None => gids
            .iter()
            .find(near)
            .or_else(|| gids.iter().find(|g| g.is_routable && g.address().is_ipv4()))
            .or_else(|| gids.iter().find(|g| g.is_routable && g.is_global()))
            .or_else(|| gids.iter().find(|g| g.is_routable || g.is_infiniband)),
    };
    let Some(gid) = gid else {
        let which = match config.gid_index {
            Some(index) => format!("address number {index}"),
            None => "address for RoCE version 2 or InfiniBand".into(),
        };
        return Err(format!("{} has no {which} at port {}", candidate.name, config.port));
    };
    Ok((index, *gid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

    fn chosen(config: &RdmaConfig, candidates: &[Candidate]) -> Result<(usize, u8), String> {
        let names: Vec<_> = candidates.iter().map(|c| c.name.clone()).collect();
        choose(config, &names, candidates).map(|(index, gid)| (index, gid.index))
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
        let config = |near| RdmaConfig { near: Some(near), ..Default::default() };
        assert_eq!(chosen(&config(Ipv4Addr::new(10, 77, 0, 2).into()), &two), Ok((1, 2)));
        let six = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
        assert_eq!(chosen(&config(six.into()), &two), Ok((0, 3)));
        let elsewhere = chosen(&config(Ipv4Addr::LOCALHOST.into()), &two).unwrap_err();
        assert!(elsewhere.contains("of rxe0, rxe1 none has 127.0.0.1"), "{elsewhere}");
    }

    #[test]
    fn what_is_not_there_is_named() {
        let named = RdmaConfig { device: Some("mlx5_0".into()), ..Default::default() };
        let refused = choose(&named, &["rxe0".into()], &[]).unwrap_err();
        assert_eq!(refused, "there is no device mlx5_0: this machine has rxe0");
        assert!(chosen(&RdmaConfig::default(), &[]).unwrap_err().contains("this machine has none"));
        let numbered = RdmaConfig { gid_index: Some(9), ..Default::default() };
        let refused = chosen(&numbered, &[rxe("rxe0", 1)]).unwrap_err();
        assert!(refused.contains("rxe0 has no address number 9"), "{refused}");
    }
}
