//! Elsewhere the system decodes nothing for Ebb: such files are named and counted.

use super::SystemDecoder;

/// There is none here.
pub(super) const DECODER: Option<SystemDecoder> = None;
