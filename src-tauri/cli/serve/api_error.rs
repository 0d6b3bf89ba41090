//! Errors in the form of the OpenAI API.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// An error that a client gets as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    /// The class of the error, which clients of the API know.
    kind: &'static str,
    /// The name of the error, if clients of the API know one.
    code: Option<&'static str>,
    /// The parameter that is wrong, such as `messages[0].role`.
    parameter: Option<String>,
    message: String,
}

impl ApiError {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let kind = if status.is_server_error() {
            "server_error"
        } else {
            "invalid_request_error"
        };
        ApiError {
            status,
            kind,
            code: None,
            parameter: None,
            message: message.into(),
        }
    }

    /// The request cannot be answered.
    pub fn bad_request(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// A parameter of the request is wrong.
    pub fn parameter(name: impl Into<String>, message: impl Into<String>) -> Self {
        ApiError {
            parameter: Some(name.into()),
            ..ApiError::bad_request(message)
        }
    }

    /// The conversation has too many tokens.
    pub fn too_long(message: impl Into<String>) -> Self {
        ApiError {
            code: Some("context_length_exceeded"),
            ..ApiError::parameter("messages", message)
        }
    }

    /// The body cannot be read, or is too large.
    pub fn unreadable_body(status: StatusCode, message: impl Into<String>) -> Self {
        ApiError::new(status, message)
    }

    /// The request comes from a page in a browser, or was sent to another host.
    pub fn forbidden(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::FORBIDDEN, message)
    }

    /// There is no such model.
    pub fn unknown_model(message: impl Into<String>) -> Self {
        ApiError {
            code: Some("model_not_found"),
            parameter: Some("model".to_owned()),
            ..ApiError::new(StatusCode::NOT_FOUND, message)
        }
    }

    /// There is no such address.
    pub fn unknown_path() -> Self {
        let message = "ebb serve answers GET /v1/models and POST /v1/chat/completions";
        ApiError::new(StatusCode::NOT_FOUND, message)
    }

    /// The address does not answer this method.
    pub fn wrong_method() -> Self {
        ApiError {
            status: StatusCode::METHOD_NOT_ALLOWED,
            ..ApiError::unknown_path()
        }
    }

    /// Too many requests wait for an answer.
    pub fn busy(message: impl Into<String>) -> Self {
        ApiError {
            kind: "rate_limit_error",
            code: Some("rate_limit_exceeded"),
            ..ApiError::new(StatusCode::TOO_MANY_REQUESTS, message)
        }
    }

    /// Ebb cannot answer, although the request is right.
    pub fn server(message: impl Into<String>) -> Self {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// The error as JSON.
    pub fn to_json(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind,
            "param": self.parameter,
            "code": self.code,
        }})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        json_response(self.status, &self.to_json())
    }
}

/// A response of JSON.
pub fn json_response(status: StatusCode, body: &Value) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, body.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_form_of_the_api() {
        let error = ApiError::parameter("messages[0].role", "messages[0] has no role");
        assert_eq!(
            error.to_json(),
            json!({"error": {
                "message": "messages[0] has no role",
                "type": "invalid_request_error",
                "param": "messages[0].role",
                "code": null,
            }})
        );
        let busy = ApiError::busy("wait").to_json();
        assert_eq!(busy["error"]["type"], "rate_limit_error");
        let failed = ApiError::server("the device failed");
        assert_eq!(failed.to_json()["error"]["type"], "server_error");
        let response = failed.into_response();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
    }
}
