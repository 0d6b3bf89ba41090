//! What the page shows already, so that a request can wait until something looks different. While
//! nothing changes, the page neither asks nor draws.

use crate::lock_mutex::lock;
use crate::window_types::MachineView;
use serde::Serialize;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

/// Bytes are shown with one decimal of a GB at most; a smaller difference cannot be seen.
const VISIBLE_BYTES: u64 = (1 << 30) / 20;

/// The machine as the page shows it.
#[derive(Default)]
pub struct ShownMachine(Mutex<MachineView>);

impl ShownMachine {
    /// Numbers a view: one that looks like the last one has its version.
    pub fn number(&self, view: MachineView) -> MachineView {
        let mut shown = lock(&self.0);
        if shown.version == 0 || !looks_like(&shown, &view) {
            let version = shown.version + 1;
            *shown = MachineView { version, ..view };
        }
        shown.clone()
    }
}

fn looks_like(one: &MachineView, other: &MachineView) -> bool {
    let bytes = |view: &MachineView| {
        [
            view.total_bytes,
            view.used_bytes,
            view.system_bytes,
            view.own_bytes,
            view.others_bytes,
            view.swap_bytes,
        ]
    };
    let mut pairs = bytes(one).into_iter().zip(bytes(other));
    let rest = |view: &MachineView| {
        let (name, device) = (view.name.clone(), view.device.clone());
        let check = view.device_check.clone();
        (
            view.level,
            name,
            device,
            check,
            view.active.clone(),
            view.queued,
        )
    };
    pairs.all(|(a, b)| a.abs_diff(b) < VISIBLE_BYTES) && rest(one) == rest(other)
}

/// A number that is equal for equal content, and never 0.
pub fn version_of(content: &impl Serialize) -> serde_json::Result<u64> {
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(content)?.hash(&mut hasher);
    // A page keeps 53 bits of a number.
    Ok((hasher.finish() >> 12) | 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pressure::Level;

    fn machine() -> MachineView {
        MachineView {
            total_bytes: 16 << 30,
            used_bytes: 8 << 30,
            device: "CPU".to_owned(),
            ..MachineView::default()
        }
    }

    #[test]
    fn a_machine_that_differs_by_less_than_is_shown_keeps_its_version() {
        let shown = ShownMachine::default();
        let first = shown.number(machine());
        assert_eq!(first.version, 1);
        let nearly = MachineView {
            used_bytes: machine().used_bytes + 1_000_000,
            pressure: 0.2,
            ..machine()
        };
        assert_eq!(shown.number(nearly).version, 1);
        let fuller = MachineView {
            others_bytes: 1 << 30,
            ..machine()
        };
        assert_eq!(shown.number(fuller.clone()).version, 2);
        let warned = MachineView {
            level: Level::Warning,
            ..fuller
        };
        assert_eq!(shown.number(warned).version, 3);
    }

    #[test]
    fn many_small_changes_are_seen_together() {
        let shown = ShownMachine::default();
        let versions = (0..10).map(|tenth| {
            let used_bytes = machine().used_bytes + tenth * VISIBLE_BYTES / 4;
            let view = MachineView {
                used_bytes,
                ..machine()
            };
            shown.number(view).version
        });
        assert_eq!(versions.collect::<Vec<_>>(), [1, 1, 1, 1, 2, 2, 2, 2, 3, 3]);
    }

    #[test]
    fn equal_content_has_the_same_version() {
        let version = |rows: &[&str]| version_of(&rows).expect("rows are JSON");
        assert_eq!(version(&["a"]), version(&["a"]));
        assert_ne!(version(&["a"]), version(&["b"]));
        assert!(version(&[]) > 0 && version(&[]) < 1 << 53);
    }
}
