//! Keeps shrunk pictures in memory up to a bound, first come first kept: each is wanted once an epoch, so throwing out the
//! oldest would lose exactly those that come next. Nothing depends on what is kept but time.

use crate::decode::Picture;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pictures by sample index.
#[derive(Debug)]
pub(crate) struct Cache {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    pictures: HashMap<u32, Arc<Picture>>,
    used_bytes: u64,
    limit_bytes: u64,
}

impl Cache {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            inner: Mutex::new(Inner {
                pictures: HashMap::new(),
                used_bytes: 0,
                limit_bytes,
            }),
        }
    }

    pub(crate) fn get(&self, index: u32) -> Option<Arc<Picture>> {
        self.lock().pictures.get(&index).cloned()
    }

    /// Keeps a picture if it fits beside the others.
    pub(crate) fn keep(&self, index: u32, picture: &Arc<Picture>) {
        let bytes = picture.rgb.len() as u64;
        let mut inner = self.lock();
        if inner.used_bytes + bytes <= inner.limit_bytes && !inner.pictures.contains_key(&index) {
            inner.pictures.insert(index, Arc::clone(picture));
            inner.used_bytes += bytes;
        }
    }

    /// Gives everything back; the bytes that were held.
    pub(crate) fn release(&self) -> u64 {
        let mut inner = self.lock();
        inner.pictures = HashMap::new();
        std::mem::take(&mut inner.used_bytes)
    }

    /// Sets another bound; empties the cache when it holds more.
    pub(crate) fn limit(&self, limit_bytes: u64) {
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

    /// A panic elsewhere cannot leave a half-made entry: every change above is whole before the guard falls.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
