//! The controller's decisions, situation by situation.

mod fixture;

mod start;
mod hold;
mod caches;
mod prefetch;
mod recovery;
mod stop;
mod shrink;
mod grow;
mod pause_and_suspend;
mod cancel;
mod fallback;
