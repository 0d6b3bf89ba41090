//! Claims about real shapes of folders and files, all generated here: no network, no clock, no file of this machine.

mod support;

mod folders;
mod hostile;

mod photographs;

mod loading;

mod choices;
mod corpora;
mod hostile_texts;
mod texts;

mod watching;
