//! Which hubs Ebb talks to, and with which token. Weights and tokens travel encrypted, except to
//! a hub on this machine.

use super::HubError;
use super::token::Token;
use ureq::http::Uri;

/// How to reach a hub.
pub struct Access {
    /// The hub is on this machine.
    pub is_local: bool,
    /// The user's access token.
    pub token: Option<Token>,
}

impl Access {
    /// Checks the address of a hub, and looks for the user's token.
    ///
    /// # Errors
    /// The address is not encrypted, or the token cannot be one.
    pub fn from_environment(endpoint: &str) -> Result<Self, HubError> {
        let (host, is_local) = checked(endpoint)?;
        let token = Token::find(&host, is_local)?;
        Ok(Self { is_local, token })
    }

    /// Checks the address of a hub, and the token that the user gave; empty without one.
    ///
    /// # Errors
    /// As [`Access::from_environment`].
    #[cfg(any(feature = "desktop", test))]
    pub fn new(endpoint: &str, token: &str) -> Result<Self, HubError> {
        let (_, is_local) = checked(endpoint)?;
        let given = Some(token.trim()).filter(|token| !token.is_empty());
        let token = given.map(|token| Token::from_text(token).ok_or(HubError::Token));
        let token = token.transpose()?;
        Ok(Self { is_local, token })
    }
}

/// The host of a hub, and whether it is on this machine.
fn checked(endpoint: &str) -> Result<(String, bool), HubError> {
    let not_encrypted = || HubError::NotEncrypted {
        endpoint: endpoint.to_owned(),
    };
    let address: Uri = endpoint.parse().map_err(|_| not_encrypted())?;
    let is_local = is_local(&address).ok_or_else(not_encrypted)?;
    Ok((address.host().unwrap_or_default().to_owned(), is_local))
}

/// Whether a hub is on this machine. `None` if its address is neither that nor encrypted.
fn is_local(address: &Uri) -> Option<bool> {
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
            let address = endpoint.parse::<Uri>().ok();
            let found = address.as_ref().and_then(is_local);
            assert_eq!(found, expected, "{endpoint}");
        }
    }
}
