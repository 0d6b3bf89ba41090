//! Ebb in the terminal: every test drives the built binary in a place of its own, one story a file. Refuses to know how
//! Ebb does it.

mod bad_input;
mod bench;
mod ended;
mod exported;
mod fine_tuned;
mod rungs;
mod checkpointed;
mod compressed;
mod drilled;
mod files;
mod first_hour;
mod flown;
mod informed;
mod group;
mod hub;
mod kept;
mod last_minutes;
mod limits;
mod numbers;
mod parked;
mod pipeline;
mod plan;
mod presets;
mod pressed;
mod repeat;
mod stop;
mod stream;
mod target;
mod texts;
mod trained_texts;
mod tried;
mod used;
mod verify_split;
mod wave;

#[path = "../support/terminal.rs"]
mod support;
