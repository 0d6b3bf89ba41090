//! The server: reads requests, puts them into the queue, and sends the answers, at once or while
//! they are generated (server-sent events).

use super::answer_queue::{AnswerEvent, AnswerQueue, PendingAnswer};
use super::api_error::{ApiError, json_response};
use super::browser_guard;
use super::chat_request::{ChatRequest, Defaults};
use super::responses::{AnswerHead, Usage, models, now};
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes of a request.
const MAX_BODY_BYTES: usize = 4 << 20;
/// The last event of a streamed answer.
const DONE: &str = "[DONE]";

/// What all requests share.
pub struct Server {
    /// Requests wait here for the model.
    pub queue: AnswerQueue,
    /// The name of the model.
    pub model: String,
    /// Most tokens of an answer, if the request sets none.
    pub tokens: usize,
    /// Seconds since 1970 when the server was started.
    created: u64,
    /// Requests so far.
    requests: AtomicU64,
}

impl Server {
    /// A server for one model.
    pub fn new(queue: AnswerQueue, model: String, tokens: usize) -> Self {
        Server {
            queue,
            model,
            tokens,
            created: now(),
            requests: AtomicU64::new(0),
        }
    }

    /// The addresses that are answered.
    pub fn into_router(self) -> Router {
        Router::new()
            .route("/v1/models", get(list_models))
            .route("/v1/chat/completions", post(complete_chat))
            .fallback(|| async { ApiError::unknown_path() })
            .method_not_allowed_fallback(|| async { ApiError::wrong_method() })
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .layer(from_fn(guarded))
            .with_state(Arc::new(self))
    }

    fn check_model(&self, wanted: Option<&str>) -> Result<(), ApiError> {
        match wanted {
            Some(wanted) if wanted != self.model => Err(ApiError::unknown_model(format!(
                "there is no model {wanted:?}; this server has the model {:?}",
                self.model
            ))),
            _ => Ok(()),
        }
    }
}

async fn guarded(request: Request, next: Next) -> Response {
    match browser_guard::check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

async fn list_models(State(server): State<Arc<Server>>) -> Response {
    json_response(StatusCode::OK, &models(&server.model, server.created))
}

async fn complete_chat(
    State(server): State<Arc<Server>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let body = body.map_err(|rejection| {
        ApiError::unreadable_body(rejection.status(), rejection.body_text())
    })?;
    let number = server.requests.fetch_add(1, Ordering::Relaxed);
    let defaults = Defaults {
        tokens: server.tokens,
        // Otherwise the same question would always get the same answer.
        seed: number,
    };
    let request = ChatRequest::parse(&body, defaults)?;
    drop(body);
    server.check_model(request.model.as_deref())?;
    let head = AnswerHead::new(number, &server.model);
    let (is_streamed, has_usage) = (request.is_streamed, request.has_usage);
    let answer = server.queue.push(request)?;
    if is_streamed {
        stream(answer, head, has_usage).await
    } else {
        whole(answer, &head).await
    }
}

/// Waits for the whole answer.
async fn whole(mut answer: PendingAnswer, head: &AnswerHead) -> Result<Response, ApiError> {
    let (mut text, mut usage) = (String::new(), Usage::default());
    loop {
        match answer.next().await {
            AnswerEvent::Begun { prompt_tokens } => usage.prompt = prompt_tokens,
            AnswerEvent::Text(part) => text.push_str(&part),
            AnswerEvent::Complete { tokens, is_cut } => {
                usage.answer = tokens;
                let body = head.answer(&text, is_cut, usage);
                return Ok(json_response(StatusCode::OK, &body));
            }
            AnswerEvent::Failed(error) => return Err(error),
        }
    }
}

/// Sends each part of the answer as an event, after the conversation was accepted.
async fn stream(
    mut answer: PendingAnswer,
    head: AnswerHead,
    has_usage: bool,
) -> Result<Response, ApiError> {
    let prompt = match answer.next().await {
        AnswerEvent::Begun { prompt_tokens } => prompt_tokens,
        AnswerEvent::Failed(error) => return Err(error),
        // The model begins before it answers.
        AnswerEvent::Text(_) | AnswerEvent::Complete { .. } => 0,
    };
    let streamed = StreamedAnswer {
        ready: VecDeque::from([head.begin().to_string()]),
        answer,
        head,
        usage: has_usage.then_some(Usage { prompt, answer: 0 }),
        is_complete: false,
    };
    let events = futures_util::stream::unfold(streamed, |mut streamed| async move {
        let data = streamed.next().await?;
        Some((Ok::<_, Infallible>(Event::default().data(data)), streamed))
    });
    Ok(Sse::new(events).into_response())
}

/// The events of a streamed answer.
struct StreamedAnswer {
    answer: PendingAnswer,
    head: AnswerHead,
    /// The numbers of tokens, if the client wants them.
    usage: Option<Usage>,
    /// Events that are sent next.
    ready: VecDeque<String>,
    is_complete: bool,
}

impl StreamedAnswer {
    /// The data of the next event; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                return Some(data);
            }
            if self.is_complete {
                return None;
            }
            match self.answer.next().await {
                AnswerEvent::Begun { .. } => {}
                AnswerEvent::Text(text) => {
                    if !text.is_empty() {
                        self.ready.push_back(self.head.text(&text).to_string());
                    }
                }
                AnswerEvent::Complete { tokens, is_cut } => self.end(tokens, is_cut),
                AnswerEvent::Failed(error) => {
                    self.ready.push_back(error.to_json().to_string());
                    self.is_complete = true;
                }
            }
        }
    }

    fn end(&mut self, tokens: usize, is_cut: bool) {
        self.ready.push_back(self.head.end(is_cut).to_string());
        if let Some(usage) = self.usage {
            let usage = Usage {
                answer: tokens,
                ..usage
            };
            self.ready.push_back(self.head.usage(usage).to_string());
        }
        self.ready.push_back(DONE.to_owned());
        self.is_complete = true;
    }
}
