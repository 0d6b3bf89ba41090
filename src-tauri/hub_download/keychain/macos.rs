//! The keychain of macOS. The system asks the user before another program may read an item.

use objc2_core_foundation::{CFBoolean, CFData, CFDictionary, CFRetained, CFString, CFType};
use objc2_security::{
    SecItemCopyMatching, kSecAttrAccount, kSecAttrServer, kSecClass, kSecClassInternetPassword,
    kSecMatchLimit, kSecMatchLimitOne, kSecReturnData,
};
use std::ptr::{self, NonNull};

/// Result code of a successful call (errSecSuccess).
const SUCCESS: i32 = 0;

/// The password of `account` at `host`. `None` if there is none, or if the user or the system
/// refuses access to it.
pub fn internet_password(host: &str, account: &str) -> Option<String> {
    let (host, account) = (CFString::from_str(host), CFString::from_str(account));
    // SAFETY: these are the system's own constants.
    let query: [(&CFString, &CFType); 5] = unsafe {
        [
            (kSecClass, kSecClassInternetPassword),
            (kSecAttrServer, &host),
            (kSecAttrAccount, &account),
            (kSecMatchLimit, kSecMatchLimitOne),
            (kSecReturnData, CFBoolean::new(true)),
        ]
    };
    let (keys, values): (Vec<&CFString>, Vec<&CFType>) = query.into_iter().unzip();
    let query = CFDictionary::from_slices(&keys, &values);
    let mut found: *const CFType = ptr::null();
    // SAFETY: the query maps the keys of the system to values of the right types, and `found` is
    // valid for writes.
    let code = unsafe { SecItemCopyMatching(query.as_opaque(), &mut found) };
    let found = NonNull::new(found.cast_mut()).filter(|_| code == SUCCESS)?;
    // SAFETY: the caller owns the result of a function whose name contains `Copy`.
    let found = unsafe { CFRetained::from_raw(found) };
    let password = found.downcast::<CFData>().ok()?;
    String::from_utf8(password.to_vec()).ok()
}
