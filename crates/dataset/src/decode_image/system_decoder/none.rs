//! Other systems: no decoder. Their HEIC and AVIF files are named and counted as unsupported.

use super::interface::SystemDecoder;

/// This system has no decoder.
pub(super) const DECODER: Option<SystemDecoder> = None;
