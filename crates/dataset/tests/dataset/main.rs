//! Claims about real shapes of folders and files, generated here: no network, no clock, no file of this machine but in `contract.rs`.

mod support;

mod folders;
mod contract;
mod hostile;

mod photographs;

mod loading;

mod choices;
mod corpora;
mod hostile_texts;
mod tables;
mod texts;

mod watching;
