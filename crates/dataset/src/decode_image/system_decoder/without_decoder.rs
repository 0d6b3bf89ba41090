//! Other systems: no decoder. Their HEIC and AVIF files are named and counted as unsupported.

use super::decoder_types::SystemDecoder;

/// This system has no decoder.
pub(super) const DECODER: Option<SystemDecoder> = None;
