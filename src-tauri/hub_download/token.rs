//! The user's access token for a hub. It is in the environment, in the keychain of a Mac, or in the
//! file of the Hugging Face libraries. Ebb never stores one.

use super::{HubError, keychain};
use std::path::PathBuf;
use ureq::http::HeaderValue;

/// Environment variable with the token.
const TOKEN: &str = "HF_TOKEN";
/// Environment variable with the path of the file.
const TOKEN_PATH: &str = "HF_TOKEN_PATH";
/// Environment variable with the folder that contains the file.
const HOME: &str = "HF_HOME";
/// The account under which `hf auth login --add-to-git-credential` stores the token of a hub in the
/// keychain. Another account may have the user's password for the web page.
const ACCOUNT: &str = "hf_user";
/// The hub that the token in the file belongs to. A mirror must not get it.
const HUB_OF_FILE: &str = "huggingface.co";
/// Most bytes of the file. A token has about forty.
const MAX_FILE_BYTES: u64 = 4 << 10;

/// An access token, as the value of a header. Its `Debug` shows only `Sensitive`, so that the token
/// never gets into a message, a log or a crash report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token(HeaderValue);

/// The places where a token may be stored. A place is read only if those before have none, because
/// the system may ask the user before the keychain is read.
struct Places<'a> {
    environment: &'a dyn Fn() -> Option<String>,
    /// Gets host and account.
    keychain: &'a dyn Fn(&str, &str) -> Option<String>,
    file: &'a dyn Fn() -> Option<String>,
}

impl Token {
    /// The user's token for the hub at `host`, if there is one. A hub on this machine gets only a
    /// token from the environment.
    ///
    /// # Errors
    /// The token has characters that no token has.
    pub fn find(host: &str, is_local: bool) -> Result<Option<Token>, HubError> {
        let environment = || std::env::var(TOKEN).ok();
        let file = || ::disk::read_text_limited(&file_path()?, MAX_FILE_BYTES).ok();
        let places = Places {
            environment: &environment,
            keychain: &keychain::internet_password,
            file: &file,
        };
        find_in(&places, host, is_local)
    }

    /// `None` if the text has a character that no token has.
    pub fn from_text(text: &str) -> Option<Token> {
        let is_token = text.bytes().all(|byte| byte.is_ascii_graphic());
        let value = is_token.then(|| HeaderValue::try_from(format!("Bearer {text}")));
        let mut value = value?.ok()?;
        value.set_sensitive(true);
        Some(Token(value))
    }

    /// The value of the header `Authorization`.
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

fn find_in(places: &Places, host: &str, is_local: bool) -> Result<Option<Token>, HubError> {
    let filled = |text: Option<String>| {
        let text = text.unwrap_or_default().trim().to_owned();
        Some(text).filter(|text| !text.is_empty())
    };
    if let Some(text) = filled((places.environment)()) {
        return Token::from_text(&text).map(Some).ok_or(HubError::Token);
    }
    if is_local {
        return Ok(None);
    }
    let from_file = || (places.file)().filter(|_| host.eq_ignore_ascii_case(HUB_OF_FILE));
    let stored = filled((places.keychain)(host, ACCOUNT)).or_else(|| filled(from_file()));
    let token = stored.map(|text| {
        Token::from_text(&text).ok_or_else(|| HubError::StoredToken {
            host: host.to_owned(),
        })
    });
    token.transpose()
}

/// The file with the token, as the Hugging Face libraries find it.
fn file_path() -> Option<PathBuf> {
    let variable = |name: &str| {
        let path = std::env::var_os(name).filter(|path| !path.is_empty());
        path.map(PathBuf::from)
    };
    let home = || Some(variable(HOME)?.join("token"));
    let usual = || Some(variable("HOME")?.join(".cache/huggingface/token"));
    variable(TOKEN_PATH).or_else(home).or_else(usual)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Finds the token if the places have these texts. Also returns which places were read.
    fn find(
        texts: [Option<&str>; 3],
        host: &str,
        is_local: bool,
    ) -> (Result<Option<Token>, HubError>, Vec<String>) {
        let reads = RefCell::new(Vec::new());
        let read = |name: String, text: Option<&str>| {
            reads.borrow_mut().push(name);
            text.map(str::to_owned)
        };
        let [environment, keychain, file] = texts;
        let places = Places {
            environment: &|| read("environment".to_owned(), environment),
            keychain: &|host, account| read(format!("{account} at {host}"), keychain),
            file: &|| read("file".to_owned(), file),
        };
        let found = find_in(&places, host, is_local);
        (found, reads.into_inner())
    }

    fn token(text: &str) -> Option<Token> {
        Some(Token::from_text(text).expect("it can be a token"))
    }

    #[test]
    fn the_first_place_with_a_token_counts() {
        let hub = HUB_OF_FILE;
        let (all, keychain, file) = (
            [Some("hf_a"), Some("hf_b"), Some("hf_c")],
            [Some(" \n"), Some("hf_b\n"), Some("hf_c")],
            [None, Some(""), Some("hf_c\n")],
        );
        for (texts, expected, last_place) in [
            (all, token("hf_a"), "environment"),
            (keychain, token("hf_b"), "hf_user at huggingface.co"),
            (file, token("hf_c"), "file"),
            ([None; 3], None, "file"),
        ] {
            let (found, reads) = find(texts, hub, false);
            assert_eq!(found.expect("they are tokens"), expected);
            assert_eq!(reads.last().map(String::as_str), Some(last_place));
        }
    }

    #[test]
    fn a_stored_token_is_sent_only_to_its_own_hub() {
        let file = [None, None, Some("hf_c")];
        for mirror in ["mirror.example.org", "huggingface.co.example.org"] {
            let (found, _) = find(file, mirror, false);
            assert_eq!(found.expect("nothing is wrong"), None, "{mirror}");
        }
        let (found, reads) = find([None, Some("hf_b"), Some("hf_c")], "127.0.0.1", true);
        assert_eq!(found.expect("nothing is wrong"), None);
        assert_eq!(reads, ["environment"]);
    }

    #[test]
    fn no_message_contains_a_token() {
        let secret = "hf_secret";
        let token = Token::from_text(secret).expect("it can be a token");
        assert_eq!(token.header(), "Bearer hf_secret");
        for shown in [format!("{token:?}"), format!("{:?}", token.header())] {
            assert!(!shown.contains(secret), "{shown}");
        }
        let broken = "hf_secret with spaces";
        assert_eq!(Token::from_text(broken), None);
        for texts in [[Some(broken), None, None], [None, Some(broken), None]] {
            let (found, _) = find(texts, HUB_OF_FILE, false);
            let error = found.expect_err("no token has spaces");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}
