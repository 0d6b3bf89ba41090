//! What the page shows if a model cannot be looked up or downloaded. The terminal names environment
//! variables; the page names its own fields.

use crate::command_error::sentence;
use crate::hub_download::HubError;

/// Why a look-up or a download ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub sentence: String,
    /// Whether an access token may help.
    pub needs_token: bool,
}

impl Problem {
    /// The look-up or the download panicked.
    pub fn internal() -> Self {
        Problem {
            sentence: "The look-up or the download stopped unexpectedly. Try again.".to_owned(),
            needs_token: false,
        }
    }
}

/// What the page shows for an error.
pub fn problem(error: &HubError) -> Problem {
    let text = match error {
        HubError::NotEncrypted { endpoint } => format!(
            "The connection to {endpoint} would not be encrypted. Enter an address that starts with https://."
        ),
        HubError::Token => {
            "The access token has a space or a control character. Copy the token again.".to_owned()
        }
        HubError::Refused {
            status: 401 | 403,
            what,
            ..
        } => format!(
            "The hub does not give {what} to everyone. Check the spelling of the name. If the model has terms, accept them on its page, then enter your access token here and look the model up again."
        ),
        HubError::NoHub { endpoint, reason } => format!(
            "{endpoint} does not answer like a Hugging Face hub: {reason}. Check the address of the hub."
        ),
        other => sentence(&other.to_string()),
    };
    Problem {
        sentence: text,
        needs_token: matches!(
            error,
            HubError::Refused {
                status: 401 | 403,
                ..
            } | HubError::Token
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_its_own_fields_instead_of_environment_variables() {
        let (endpoint, what) = ("https://hub.example".to_owned(), "org/name".to_owned());
        let reason = "no list".to_owned();
        let refused = |status| HubError::Refused {
            what: what.clone(),
            endpoint: endpoint.clone(),
            status,
            next: "try again later",
        };
        for (error, part, needs_token) in [
            (HubError::Token, "Copy the token again.", true),
            (refused(401), "enter your access token", true),
            (refused(404), "answered 404 for org/name", false),
            (
                HubError::NotEncrypted {
                    endpoint: endpoint.clone(),
                },
                "Enter an address",
                false,
            ),
            (
                HubError::NoHub {
                    endpoint: endpoint.clone(),
                    reason,
                },
                "Check the address of the hub.",
                false,
            ),
            (HubError::Cancelled, "The download was cancelled", false),
        ] {
            let Problem {
                sentence,
                needs_token: needs,
            } = problem(&error);
            assert!(sentence.contains(part), "{sentence}");
            assert!(!sentence.contains("HF_"), "{sentence}");
            assert_eq!(needs, needs_token, "{sentence}");
        }
    }
}
