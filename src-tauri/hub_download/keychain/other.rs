//! Systems without the keychain of macOS: nothing is stored there.

/// The password of `account` at `host`: none.
pub fn internet_password(_host: &str, _account: &str) -> Option<String> {
    None
}
