//! What connects the ranks of a group. The messenger builds everything else on it.

use crate::error::Result;
use crate::group::Values;

/// Sends messages and sums values. All calls return at once, and all come from one thread.
pub(crate) trait Transport {
    /// Number of this rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Sends `bytes` to a rank. Messages between two ranks arrive in order.
    ///
    /// # Errors
    /// The rank cannot be reached.
    fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<()>;

    /// The next message that has arrived, with its sender.
    ///
    /// # Errors
    /// The connection is lost.
    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>>;

    /// Whether a message is under way, which each call advances by a part.
    fn is_busy(&self) -> bool;

    /// Begins to sum `values` over all ranks. All ranks begin the same sums in the same order, and
    /// one at a time.
    ///
    /// # Errors
    /// The connection is lost.
    fn begin_sum(&mut self, values: Values) -> Result<()>;

    /// The sum, once it is complete: the same bits on all ranks.
    ///
    /// # Errors
    /// The connection is lost.
    fn poll_sum(&mut self) -> Result<Option<Values>>;

    /// Leaves out the ranks that have ended, if there are any and the transport can continue
    /// without them. Returns the former numbers of the ranks that are left, in their new order.
    /// Messages and sums that are under way are dropped. It may wait a moment for the other ranks
    /// that are left, which call it at about the same time.
    ///
    /// # Errors
    /// Rank 0 has ended, or a rank that is left does not answer.
    fn leave_out_ended(&mut self) -> Result<Option<Vec<usize>>>;

    /// Disconnects. All ranks call it.
    fn disconnect(&mut self);

    /// Ends the connection of a group in which not all ranks can disconnect any more. May end the
    /// processes of all ranks, including this one.
    fn abort(&mut self);
}
