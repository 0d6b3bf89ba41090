//! Keeps pages in a browser away from the server. A page of another origin may send requests to
//! this machine, and its browser names that origin. A page can also make the name of its own host
//! point to this machine (DNS rebinding); the header `Host` then still has that name.

use super::api_error::ApiError;
use axum::http::{HeaderMap, header};

/// Names of this machine that the server answers to.
const HOSTS: [&str; 2] = ["127.0.0.1", "localhost"];
/// Set by browsers: where a request comes from, seen from the page that it goes to.
const FETCH_SITE: &str = "sec-fetch-site";

/// Refuses a request to another host, or from a page of another origin.
pub fn check(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().unwrap_or_default(),
        _ => "",
    };
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    if !HOSTS.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return Err(ApiError::forbidden(
            "ebb serve answers only requests to http://127.0.0.1 and http://localhost",
        ));
    }
    let own = format!("http://{host}");
    let is_foreign = |origin: &[u8]| !origin.eq_ignore_ascii_case(own.as_bytes());
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let has_foreign_origin = origins.any(|origin| is_foreign(origin.as_bytes()));
    let site = headers.get(FETCH_SITE).map(|site| site.as_bytes());
    let is_own_site = matches!(site, None | Some(b"same-origin" | b"none"));
    if has_foreign_origin || !is_own_site {
        return Err(ApiError::forbidden(
            "ebb serve does not answer pages of other origins in a browser",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn is_allowed(headers: &[(&'static str, &'static str)]) -> bool {
        let mut map = HeaderMap::new();
        for &(name, value) in headers {
            map.append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        check(&map).is_ok()
    }

    #[test]
    fn only_programs_of_this_machine_are_answered() {
        for host in ["127.0.0.1:8080", "localhost:8080", "LOCALHOST", "127.0.0.1"] {
            assert!(is_allowed(&[("host", host)]), "{host}");
        }
        for host in [
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost.evil.example:8080",
            "192.168.0.2:8080",
            "",
        ] {
            assert!(!is_allowed(&[("host", host)]), "{host}");
        }
        assert!(!is_allowed(&[]), "a request without a host");
        assert!(!is_allowed(&[
            ("host", "127.0.0.1"),
            ("host", "evil.example")
        ]));
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let own = ("host", "127.0.0.1:8080");
        for origin in [
            "http://evil.example",
            "null",
            "http://127.0.0.1:3000",
            "https://127.0.0.1:8080",
        ] {
            assert!(!is_allowed(&[own, ("origin", origin)]), "{origin}");
        }
        assert!(is_allowed(&[own, ("origin", "http://127.0.0.1:8080")]));
        for (site, allowed) in [
            ("cross-site", false),
            ("same-site", false),
            ("same-origin", true),
            ("none", true),
        ] {
            assert_eq!(is_allowed(&[own, (FETCH_SITE, site)]), allowed, "{site}");
        }
    }
}
