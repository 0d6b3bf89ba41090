//! Tests of detection, inspection and loading on generated folders. They need no network, and no
//! files of this machine.

#[path = "../../../../tests/support/small_child.rs"]
mod small_child;
mod support;

mod class_folders;
mod dirty_folder;
mod hostile_folders;

mod image_samples;
mod image_tables;

mod loader;

mod chat_templates;
mod conversations;
mod documents;
mod hostile_texts;
mod text_options;
mod text_tables;

mod watch_folder;
