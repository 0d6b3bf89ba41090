//! What the controller answers, situation by situation.

mod bench;

mod start;
mod hold;
mod caches;
mod prefetch;
mod rungs;
mod stop;
mod shrink;
mod grow;
mod wait;
mod cancel;
mod blind;
