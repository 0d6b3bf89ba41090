//! Linux: batteries and chargers under `/sys/class/power_supply`, and the platform profile. Same
//! interface as `macos.rs`.

use super::{PowerSource, PowerState};
use std::fs;
use std::path::{Path, PathBuf};

const SYS: &str = "/sys";

/// The power of a Linux machine.
pub(super) struct Power {
    sys: PathBuf,
}

impl Power {
    pub(super) fn open() -> Self {
        Power { sys: SYS.into() }
    }
}

impl PowerSource for Power {
    fn read(&mut self) -> PowerState {
        let profile = text(&self.sys.join("firmware/acpi/platform_profile"));
        PowerState {
            low_power: profile.map(|profile| profile == "low-power"),
            ..supplies(&self.sys.join("class/power_supply"))
        }
    }
}

/// What the supplies report together. Batteries of mice and headphones have a scope and do not
/// count.
fn supplies(folder: &Path) -> PowerState {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let (mut discharging, mut charged, mut batteries, mut known) = (false, 0.0, 0.0, false);
    for supply in entries.map(|entry| entry.path()) {
        let read = |name: &str| text(&supply.join(name));
        let is_machines = read("scope").is_none_or(|scope| scope == "System");
        if read("type").as_deref() != Some("Battery") || !is_machines {
            continue;
        }
        known = true;
        discharging |= read("status").as_deref() == Some("Discharging");
        if let Some(percent) = read("capacity").and_then(|text| text.parse::<f64>().ok()) {
            charged += percent / 100.0;
            batteries += 1.0;
        }
    }
    PowerState {
        on_battery: known.then_some(discharging),
        charge_fraction: (batteries > 0.0).then(|| charged / batteries),
        ..PowerState::default()
    }
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose files have these contents.
    fn state(files: &[(&str, &str)]) -> PowerState {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
            fs::write(path, format!("{content}\n")).expect("it can be written");
        }
        let sys = root.path().to_owned();
        Power { sys }.read()
    }

    #[test]
    fn a_machine_without_a_battery_reports_nothing() {
        assert_eq!(state(&[]), PowerState::default());
        let mains = [("class/power_supply/AC/type", "Mains")];
        assert_eq!(state(&mains), PowerState::default());
    }

    #[test]
    fn a_discharging_battery_means_battery() {
        let laptop = |status| {
            state(&[
                ("class/power_supply/BAT0/type", "Battery"),
                ("class/power_supply/BAT0/status", status),
                ("class/power_supply/BAT0/capacity", "40"),
            ])
        };
        let unplugged = laptop("Discharging");
        assert_eq!(unplugged.on_battery, Some(true));
        assert_eq!(unplugged.charge_fraction, Some(0.4));
        assert_eq!(laptop("Charging").on_battery, Some(false));
        assert_eq!(laptop("Not charging").on_battery, Some(false));
    }

    #[test]
    fn the_battery_of_a_mouse_does_not_count() {
        let mouse = state(&[
            ("class/power_supply/hid-1/type", "Battery"),
            ("class/power_supply/hid-1/scope", "Device"),
            ("class/power_supply/hid-1/status", "Discharging"),
        ]);
        assert_eq!(mouse, PowerState::default());
    }

    #[test]
    fn the_low_power_profile_is_low_power() {
        let profile = |name| state(&[("firmware/acpi/platform_profile", name)]).low_power;
        assert_eq!(profile("low-power"), Some(true));
        assert_eq!(profile("balanced"), Some(false));
    }
}
