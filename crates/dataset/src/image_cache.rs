//! Caches shrunk images in memory up to a limit. Images that come first stay: each is needed once
//! per epoch, so evicting the oldest would evict those that are needed next. The cache changes only
//! timing.

use crate::decoded_image::DecodedImage;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pictures by sample index.
#[derive(Debug)]
pub(crate) struct ImageCache {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    images: HashMap<u32, Arc<DecodedImage>>,
    used_bytes: u64,
    limit_bytes: u64,
}

impl ImageCache {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            inner: Mutex::new(Inner {
                images: HashMap::new(),
                used_bytes: 0,
                limit_bytes,
            }),
        }
    }

    pub(crate) fn get(&self, index: u32) -> Option<Arc<DecodedImage>> {
        self.lock().images.get(&index).cloned()
    }

    /// Caches an image if it fits.
    pub(crate) fn insert(&self, index: u32, image: &Arc<DecodedImage>) {
        let bytes = image.rgb.len() as u64;
        let mut inner = self.lock();
        if inner.used_bytes + bytes <= inner.limit_bytes && !inner.images.contains_key(&index) {
            inner.images.insert(index, Arc::clone(image));
            inner.used_bytes += bytes;
        }
    }

    /// Empties the cache. Returns the bytes that were cached.
    pub(crate) fn release(&self) -> u64 {
        let mut inner = self.lock();
        inner.images = HashMap::new();
        std::mem::take(&mut inner.used_bytes)
    }

    /// Changes the limit. Empties the cache if it holds more.
    pub(crate) fn set_limit(&self, limit_bytes: u64) {
        self.lock().limit_bytes = limit_bytes;
        if self.used_bytes() > limit_bytes {
            self.release();
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.lock().used_bytes
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.lock().limit_bytes
    }

    /// Ignores poisoning: every change above is complete before its guard is dropped.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
