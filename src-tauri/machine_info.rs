//! The names of this machine: its chip, its model and its system. Linux has these names in files,
//! macOS prints them with a command. An unknown name is empty.

use std::process::Command;
use std::sync::OnceLock;

/// Name of the chip, read once.
pub fn chip() -> &'static str {
    static CHIP: OnceLock<String> = OnceLock::new();
    CHIP.get_or_init(|| {
        let line = value_in_file("/proc/cpuinfo", "model name", ':');
        line.or_else(|| from_sysctl("machdep.cpu.brand_string"))
            .unwrap_or_default()
    })
}

/// The maker's name of the machine, such as `Mac16,5`.
pub fn model() -> String {
    let product = std::fs::read_to_string("/sys/devices/virtual/dmi/id/product_name").ok();
    let product = product.map(|name| name.trim().to_owned());
    product
        .filter(|name| !name.is_empty())
        .or_else(|| from_sysctl("hw.model"))
        .unwrap_or_default()
}

/// The system with its version, such as `macOS 15.1 (Build 24B83)`.
pub fn system() -> String {
    let version = trainer::system_version();
    match version.strip_prefix("Version ") {
        Some(number) => format!("macOS {number}"),
        None => value_in_file("/etc/os-release", "PRETTY_NAME", '=').unwrap_or(version),
    }
}

/// The value of the first line that begins with `key`, without quotes.
fn value_in_file(path: &str, key: &str, separator: char) -> Option<String> {
    value_of(&std::fs::read_to_string(path).ok()?, key, separator)
}

fn value_of(text: &str, key: &str, separator: char) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    let value = line.split_once(separator)?.1.trim().trim_matches('"');
    (!value.is_empty()).then(|| value.to_owned())
}

fn from_sysctl(name: &str) -> Option<String> {
    let asked = Command::new("/usr/sbin/sysctl")
        .args(["-n", name])
        .output()
        .ok()?;
    let value = String::from_utf8(asked.stdout).ok()?.trim().to_owned();
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_without_quotes() {
        let release = "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\nEMPTY=\n";
        let value = |key| value_of(release, key, '=');
        assert_eq!(value("PRETTY_NAME").as_deref(), Some("Debian GNU/Linux 12"));
        assert_eq!(value("EMPTY"), None);
        assert_eq!(value("MISSING"), None);
        let processor = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n";
        let name = value_of(processor, "model name", ':');
        assert_eq!(name.as_deref(), Some("A CPU @ 2 GHz"));
    }
}
