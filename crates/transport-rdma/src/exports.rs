//! The regions of this host, registered with its device.
//!
//! The keys, their generations and the memory itself are the carrier's: this host's threads reach
//! them there. What is added here is the registration, and who has been told its remote key.

use crate::{
    error::advice,
    memory::Memory,
    message::Told,
    verbs::{Mr, Pd},
};
use primitive::SharedBytes;
use std::{
    collections::{BTreeSet, HashMap},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use transport_api::{Access, Carrier, HostId, Region, RegionError, RegionKey, Rights};

/// An exported region.
pub(crate) struct Exported {
    /// As the carrier has exported it.
    region: Region,
    /// A registration for each set of rights that some host has, by which the device tells hosts
    /// apart. None if it has no bytes, or once it is withdrawn.
    mrs: Mutex<Vec<(Rights, Mr)>>,
    /// Hosts that know its remote key.
    importers: Mutex<BTreeSet<HostId>>,
}

impl Exported {
    pub(crate) fn generation(&self) -> u32 {
        self.region.generation()
    }

    /// What is exported.
    pub(crate) fn memory(&self) -> &SharedBytes {
        self.region.memory()
    }

    /// Where it is for devices: its first byte, and what opens it to a host with `rights`.
    pub(crate) fn place(&self, rights: Rights) -> (u64, u32) {
        let mrs = self.mrs.lock().unwrap_or_else(PoisonError::into_inner);
        let mr = mrs.iter().find(|(class, _)| *class == rights);
        mr.map_or((0, 0), |(_, mr)| (mr.address(), mr.remote_key()))
    }

    /// What `host` is told of it.
    pub(crate) fn tell(&self, host: HostId) -> Told {
        let rights = self.region.access().of(host);
        if rights != Rights::NONE {
            let mut importers = self.importers.lock().unwrap_or_else(PoisonError::into_inner);
            importers.insert(host);
        }
        let (address, remote_key) = self.place(rights);
        let len = self.region.memory().len() as u64;
        Told { rights, generation: self.generation(), len, address, remote_key }
    }

    /// Who was told.
    pub(crate) fn importers(&self) -> BTreeSet<HostId> {
        self.importers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the registrations: from now on the device refuses their keys.
    pub(crate) fn close(&self) {
        self.mrs.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The regions of this host.
#[derive(Default)]
pub(crate) struct Exports(Mutex<HashMap<RegionKey, Arc<Exported>>>);

impl Exports {
    fn table(&self) -> MutexGuard<'_, HashMap<RegionKey, Arc<Exported>>> {
        // Every change of the table is one insertion or removal: it is whole whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exports `len` bytes at the carrier, and registers them.
    pub(crate) fn export(
        &self,
        (carrier, pd, memory): (&dyn Carrier, &Arc<Pd>, &Memory),
        key: RegionKey,
        len: usize,
        access: Access,
    ) -> Result<Region, RegionError> {
        let mut table = self.table();
        let no_memory = |source| RegionError::NoMemory { len, source };
        let memory = memory.take(len).map_err(no_memory)?;
        let classes =
            access.classes().into_iter().filter(|class| len > 0 && *class != Rights::NONE);
        let region = carrier.export_memory(key, memory, access.clone())?;
        let register = |class| Ok((class, Mr::new(pd, region.memory(), class)?));
        let mrs: io::Result<Vec<_>> = classes.map(register).collect();
        let mrs = mrs.map_err(|error| {
            let text = format!("the RDMA device does not take it: {error}{}", advice(&error));
            no_memory(io::Error::new(error.kind(), text))
        })?;
        let importers = Mutex::default();
        let exported = Exported { region: region.clone(), mrs: Mutex::new(mrs), importers };
        table.insert(key, Arc::new(exported));
        Ok(region)
    }

    /// Takes `key` out of the table (only `generation` of it, if given): nobody is told of it any
    /// more.
    pub(crate) fn remove(&self, key: RegionKey, generation: Option<u32>) -> Option<Arc<Exported>> {
        let mut table = self.table();
        let matches = |e: &&Arc<Exported>| generation.is_none_or(|g| g == e.generation());
        table.get(&key).filter(matches)?;
        table.remove(&key)
    }

    /// The region that is exported under `key`, if there is one.
    pub(crate) fn get(&self, key: RegionKey) -> Option<Arc<Exported>> {
        self.table().get(&key).cloned()
    }

    /// Tells `host` of the region under `key`, if there is one. Whoever removes it afterwards sees
    /// that.
    pub(crate) fn tell(&self, key: RegionKey, host: HostId) -> Option<Told> {
        self.table().get(&key).map(|exported| exported.tell(host))
    }
}
