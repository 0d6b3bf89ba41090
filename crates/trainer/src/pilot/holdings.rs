//! What the run holds beside pieces, as the pilot must know it: what waits decoded, the place of its moments, the disk, what can no
//! longer be read. Decides nothing.

use super::Pilot;
use crate::error::Result;
use pressure::{Moments, Phase};
use tape::memory::release;

impl Pilot {
    /// The user's ceiling on this machine, in bytes.
    pub fn cap_bytes(&self) -> Option<u64> {
        self.policy.cap_bytes(self.total_bytes())
    }

    /// Footprint of the run without a piece, in bytes, with the program and what waits decoded; 0 until pieces of two sizes have
    /// shown it.
    pub fn standing_bytes(&self) -> u64 {
        let kept = self.model.state_bytes(self.kind(Phase::Train));
        kept.map_or(0, |kept| kept + self.spare_bytes)
    }

    /// What the footprint holds now that a shorter prefetch gives back, in bytes.
    pub fn set_spare(&mut self, bytes: u64) {
        self.spare_bytes = bytes;
    }

    /// What has become unreadable since the last call, in a sentence; each loss once.
    pub fn take_notice(&self) -> Option<String> {
        self.monitor.take_notice()
    }

    /// Free space of the disk that checkpoints go to, in bytes, where it is known.
    pub fn set_disk_free(&mut self, bytes: Option<u64>) {
        self.state.set_disk_free(bytes);
    }

    /// A checkpoint was written in so many milliseconds.
    pub fn tell_checkpoint(&mut self, took_ms: f64) {
        if let Some(sample) = self.monitor.latest() {
            self.state.checkpoint_written(sample.at_ms, took_ms);
        }
    }

    /// The moments could not be moved to a file: they stay in memory from now on.
    pub fn keep_moments_resident(&mut self) {
        self.state.disable_mapped_moments();
        self.follow_moments(Moments::Resident);
    }

    /// The state gets smaller or larger by the moments as they go or come back.
    pub(super) fn follow_moments(&mut self, moments: Moments) {
        let bytes = self.reserve.moments_bytes;
        match (std::mem::replace(&mut self.moments, moments), moments) {
            (Moments::Resident, Moments::Mapped) => self.model.state_shrank(bytes),
            (Moments::Mapped, Moments::Resident) => self.model.state_grew(bytes),
            (Moments::Resident, Moments::Resident) | (Moments::Mapped, Moments::Mapped) => {}
        }
    }

    /// Gives cached memory back.
    pub fn release(&self) -> Result<()> {
        Ok(release(&self.device, self.purge)?)
    }
}
