//! What can go wrong in a group. Each message names the machine.

use std::fmt;
use thiserror::Error;

/// Result of the functions of a group.
pub type Result<T> = std::result::Result<T, GroupError>;

/// A rank and the machine that it runs on, as messages name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number when the group began, from 0.
    pub rank: usize,
    /// Host name of its machine; empty as long as it is unknown.
    pub host: String,
}

impl fmt::Display for Member {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.is_empty() {
            write!(to, "rank {}", self.rank)
        } else {
            write!(to, "rank {} ({})", self.rank, self.host)
        }
    }
}

/// Why a group cannot start or cannot continue. After [`GroupError::Lost`], it may continue with
/// [`Group::rejoin`](crate::Group::rejoin). After any other error but [`GroupError::Unavailable`]
/// the group can only be left.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GroupError {
    /// The library that connects the machines cannot be used.
    #[error("{0}")]
    Unavailable(String),
    /// A message or a sum could not be exchanged.
    #[error("the connection between the machines failed: {0}")]
    Connection(String),
    /// A rank ended, or the connection to it is lost.
    #[error("{0} ended or can no longer be reached")]
    Lost(Member),
    /// A rank has not answered for a long time.
    #[error("{member} has not answered for {seconds} s")]
    Silent {
        /// The rank.
        member: Member,
        /// Seconds since its last message.
        seconds: u64,
    },
    /// A rank ended the run with an error.
    #[error("{member} ended the run: {message}")]
    Failed {
        /// The rank.
        member: Member,
        /// Its error.
        message: String,
    },
    /// Messages do not fit together.
    #[error("the machines disagree: {0}")]
    Disagreement(String),
    /// The thread that exchanges messages has ended.
    #[error("this machine has already left the group")]
    Left,
}
