//! Which hubs Ebb talks to, and with which token. Weights and tokens travel encrypted, except to
//! a hub on this machine.

use super::HubError;
use ureq::http::Uri;

/// Environment variable with the user's access token.
const TOKEN: &str = "HF_TOKEN";

/// How to reach a hub.
pub struct Access {
    /// The hub is on this machine.
    pub is_local: bool,
    /// The user's access token. It has no `Debug`, so that it never gets into a message.
    pub token: Option<String>,
}

impl Access {
    /// Checks the address of a hub, and reads the token from the environment.
    ///
    /// # Errors
    /// The address is not encrypted, or the token cannot be one.
    pub fn from_environment(endpoint: &str) -> Result<Self, HubError> {
        let is_local = is_local(endpoint).ok_or_else(|| HubError::NotEncrypted {
            endpoint: endpoint.to_owned(),
        })?;
        let token = std::env::var(TOKEN).unwrap_or_default();
        let token = Some(token.trim().to_owned()).filter(|token| !token.is_empty());
        let is_token = |token: &String| token.bytes().all(|byte| byte.is_ascii_graphic());
        if !token.iter().all(is_token) {
            return Err(HubError::Token);
        }
        Ok(Self { is_local, token })
    }
}

/// Whether a hub is on this machine. `None` if its address is neither that nor encrypted.
fn is_local(endpoint: &str) -> Option<bool> {
    let address: Uri = endpoint.parse().ok()?;
    let host = address.host()?;
    match address.scheme_str()? {
        "https" => Some(false),
        "http" if ["127.0.0.1", "localhost", "[::1]"].contains(&host) => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_hub_on_this_machine_may_be_reached_without_encryption() {
        for (endpoint, expected) in [
            ("https://hub.example.org", Some(false)),
            ("https://hub.example.org/mirror", Some(false)),
            ("http://127.0.0.1:8080", Some(true)),
            ("http://localhost:8080", Some(true)),
            ("http://[::1]:8080", Some(true)),
            ("http://hub.example.org", None),
            ("http://127.0.0.1.example.org", None),
            ("http://localhost@example.org", None),
            ("ftp://127.0.0.1", None),
            ("hub.example.org", None),
            ("", None),
        ] {
            assert_eq!(is_local(endpoint), expected, "{endpoint}");
        }
    }
}
