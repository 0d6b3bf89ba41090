//! The list of machines that the user names: `studio.local,air.local=/data/birds`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Longest name of a host, by the rules of the domain name system.
const LONGEST_NAME: usize = 253;
/// Most processes in a list.
const MOST_RANKS: usize = 1024;

/// A machine of the list. A machine that is listed twice trains in two processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name, or its address in IPv4.
    pub name: String,
    /// The folder of the samples on this machine, if it is another one than here.
    pub folder: Option<PathBuf>,
}

impl Host {
    /// Whether this is the machine that Ebb runs on, whose name is `own_name`.
    pub fn is_here(&self, own_name: &str) -> bool {
        let name = self.name.to_ascii_lowercase();
        let own = own_name.to_ascii_lowercase();
        let short = own.split('.').next().unwrap_or_default();
        let here = ["localhost", "127.0.0.1", &own, short];
        here.contains(&name.as_str()) || name == format!("{short}.local")
    }
}

impl fmt::Display for Host {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.folder {
            None => to.write_str(&self.name),
            Some(folder) => write!(to, "{}={}", self.name, folder.display()),
        }
    }
}

/// A list of machines, as an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts(pub Vec<Host>);

impl fmt::Display for Hosts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(Host::to_string).collect();
        to.write_str(&names.join(","))
    }
}

impl FromStr for Hosts {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        if list.trim().is_empty() {
            return Err("the list of machines is empty; write --on localhost,OTHER".to_owned());
        }
        let hosts = list.split(',').map(|host| match host.split_once('=') {
            None => Ok(Host {
                name: checked_name(host)?,
                folder: None,
            }),
            Some((name, "")) => Err(format!("no folder follows {}=", checked_name(name)?)),
            Some((name, folder)) => Ok(Host {
                name: checked_name(name)?,
                folder: Some(folder.into()),
            }),
        });
        let hosts = hosts.collect::<Result<Vec<_>, String>>()?;
        if hosts.len() > MOST_RANKS {
            let count = hosts.len();
            return Err(format!(
                "the list has {count} machines, but at most {MOST_RANKS} can train together"
            ));
        }
        Ok(Hosts(hosts))
    }
}

/// Refuses what a launcher or ssh could take for an option or for several words.
fn checked_name(name: &str) -> Result<String, String> {
    let shown = || {
        let short: String = name.chars().take(40).collect();
        format!("{short:?}")
    };
    if name.is_empty() {
        return Err("a name between two commas is missing".to_owned());
    }
    if name.len() > LONGEST_NAME {
        let letters = name.chars().count();
        return Err(format!(
            "{}… has {letters} letters, but a host name has at most {LONGEST_NAME}",
            shown()
        ));
    }
    if name.starts_with('-') {
        return Err(format!(
            "{} is not a host name, because it begins with a dash",
            shown()
        ));
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if let Some(wrong) = name.chars().find(|c| !is_allowed(*c)) {
        return Err(format!(
            "{} is not a host name, because it contains {wrong:?}; letters, digits, dots, dashes and underscores are allowed, and the settings of a host belong in ~/.ssh/config",
            shown()
        ));
    }
    Ok(name.to_owned())
}

/// A network interface, such as `en0` or `bridge0`, or an address with a prefix, such as
/// `192.168.2.0/24`.
pub fn parse_interface(name: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    let is_name = !name.is_empty() && name.len() <= 43 && !name.starts_with('-');
    if is_name && name.chars().all(is_allowed) {
        return Ok(name.to_owned());
    }
    Err("this is not a network interface; write a name such as en0, or a network such as 192.168.2.0/24".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_order_folders_and_repetitions() {
        let list: Hosts = "studio.local,air.local=/data/my birds,studio.local"
            .parse()
            .expect("it is a list");
        let names: Vec<&str> = list.0.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["studio.local", "air.local", "studio.local"]);
        assert_eq!(list.0[1].folder, Some(PathBuf::from("/data/my birds")));
        assert_eq!(
            list.to_string(),
            "studio.local,air.local=/data/my birds,studio.local"
        );
    }

    #[test]
    fn hostile_names_are_refused() {
        let long = "a".repeat(300);
        for (list, part) in [
            ("", "empty"),
            (" ", "empty"),
            (",", "missing"),
            ("a,,b", "missing"),
            ("-oProxyCommand=touch x", "begins with a dash"),
            ("a,-b", "begins with a dash"),
            ("two words", "' '"),
            ("a\nb", "'\\n'"),
            ("a\0b", "'\\0'"),
            ("a;b", "';'"),
            ("$(id)", "'$'"),
            ("me@air", "'@'"),
            ("a:22", "':'"),
            ("bücher", "'ü'"),
            (&long, "300 letters"),
            ("air=", "no folder"),
        ] {
            let refused = list.parse::<Hosts>().expect_err(list);
            assert!(refused.contains(part), "{list:?}: {refused}");
            assert!(!refused.contains(['\n', '\0']), "{refused:?}");
        }
        assert!("a".repeat(253).parse::<Hosts>().is_ok());
    }

    #[test]
    fn this_machine_is_known_by_its_names() {
        let here = |name: &str| {
            let host = Host {
                name: name.to_owned(),
                folder: None,
            };
            host.is_here("Studio.home.net")
        };
        for name in [
            "localhost",
            "127.0.0.1",
            "studio",
            "Studio.local",
            "studio.home.net",
        ] {
            assert!(here(name), "{name}");
        }
        assert!(!here("studio2") && !here("air.local"));
    }

    #[test]
    fn interfaces_are_plain_names() {
        for name in ["en0", "bridge0", "192.168.2.0/24", "eth0.7"] {
            assert!(parse_interface(name).is_ok());
        }
        for name in ["", "-x", "a b", "en0,en1", "a;b"] {
            assert!(parse_interface(name).is_err(), "{name}");
        }
    }
}
