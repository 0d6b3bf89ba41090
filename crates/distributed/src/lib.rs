//! Several processes that train one run together, usually on several machines.
//!
//! A [`Group`] has one process per machine or GPU, called ranks. All ranks know the samples of
//! each step. A coordinator at rank 0 distributes them: each rank claims as many samples as its own
//! memory allows, adds up their gradients, and claims again. Once all samples are confirmed, the
//! ranks add their sums up and make the same update. A rank that is slow or short of memory claims
//! less, so no rank waits for it.
//!
//! ```
//! use distributed::{SingleRank, Claim, ClaimRequest, Ended, Group, Values};
//!
//! # fn main() -> distributed::Result<()> {
//! let mut group = SingleRank::default();
//! let (mut sum, mut ended) = (0.0, None);
//! group.begin_step(10);
//! loop {
//!     let request = ClaimRequest { at_most: 4, ended: ended.take(), stop: false };
//!     match group.claim(request)? {
//!         Claim::Samples { samples, .. } => {
//!             sum += samples.map(f64::from).sum::<f64>();
//!             ended = Some(Ended::Confirmed);
//!         }
//!         Claim::Wait => std::thread::sleep(std::time::Duration::from_millis(1)),
//!         Claim::Complete | Claim::Stop => break,
//!     }
//! }
//! assert_eq!(group.sum(Values::Double(vec![sum]))?, Values::Double(vec![45.0]));
//! # Ok(())
//! # }
//! ```

mod error;
mod random;
mod host_name;
mod group;
mod coordinator;
mod single_rank;
mod rounded_sum;
mod message;
mod transport;
mod patience;
mod messenger;
mod connected_group;
mod thread_group;
mod mpi;

pub use error::{GroupError, Member, Result};
pub use group::{Claim, ClaimRequest, Ended, Group, RoundedSum, Share, Values};
pub use host_name::host_name;
pub use mpi::{find_library, join_launched, tolerates_faults};
pub use patience::{PATIENCE_VARIABLE, patience};
pub use single_rank::SingleRank;
pub use thread_group::{ThreadOptions, ThreadRank, thread_ranks};
