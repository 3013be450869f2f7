//! A process as a machine sees it, for tests and fuzzing: regions, and what has happened.

use std::sync::Arc;

use primitive::SharedBytes;
use transport_api::{Event, RegionKey, Rights};

use crate::export::Exported;
use crate::machine::{Name, Port};

/// Regions, and what a machine has reported.
pub(crate) struct Fake {
    pub(crate) regions: Vec<Arc<Exported>>,
    pub(crate) events: Vec<(u32, Event)>,
    pub(crate) woken: Vec<u32>,
    pub(crate) goodbyes: u32,
}

impl Fake {
    /// A process with these regions of `len` bytes each, which are zero.
    pub(crate) fn new<const N: usize>(regions: [(Name, Rights); N], len: usize) -> Fake {
        let export = |(name, rights): (Name, Rights)| {
            let memory = SharedBytes::heap(len);
            Arc::new(Exported::new((name.key, name.generation), rights.into(), memory))
        };
        let regions = regions.map(export).into();
        Fake { regions, events: Vec::new(), woken: Vec::new(), goodbyes: 0 }
    }
}

impl Port for Fake {
    fn region(&mut self, key: RegionKey) -> Option<Arc<Exported>> {
        self.regions.iter().find(|region| region.key == key).cloned()
    }
    fn was_exported(&mut self, Name { key, generation }: Name) -> bool {
        self.regions.iter().any(|region| region.key == key && generation <= region.generation)
    }
    fn event(&mut self, thread: u32, event: Event) {
        self.events.push((thread, event));
    }
    fn wake(&mut self, thread: u32) {
        self.woken.push(thread);
    }
    fn goodbye(&mut self) {
        self.goodbyes += 1;
    }
}
