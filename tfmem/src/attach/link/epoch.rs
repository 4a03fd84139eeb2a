//! Telling the BPF programs that what they remember of processes does not hold any more.

use anyhow::{Context as _, Result};
use aya::maps::{Array, MapData};
use tfmem_common::config::{EPOCH_BY_LOADER, PLACES_MAY_MOVE};

pub struct Epoch {
    map: Array<MapData, u64>,
    present: u64,
}

impl Epoch {
    /// # Errors
    /// What the kernel said.
    pub fn begin(map: Array<MapData, u64>) -> Result<Self> {
        let mut epoch = Self { map, present: 0 };
        epoch.next()?;
        Ok(epoch)
    }

    /// To be called behind a change of `PROCESSES`.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn next(&mut self) -> Result<()> {
        self.present += 1;
        self.map.set(EPOCH_BY_LOADER, self.present, 0).context("begin a new epoch")
    }

    /// Nobody sees libraries go: the programs are to look for places in them each time.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn places_may_move(&mut self) -> Result<()> {
        self.present |= PLACES_MAY_MOVE;
        self.next()
    }
}
