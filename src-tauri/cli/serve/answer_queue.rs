//! Requests wait here for the model, which answers them on the main thread, one after the other.
//! The queue is bounded. If a client leaves, its answer ends, or never begins.

use super::api_error::ApiError;
use super::chat_request::ChatRequest;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::{
    Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel,
};

/// Most requests that wait, besides the one that is answered.
const MAX_WAITING: usize = 8;

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerEvent {
    /// The conversation can be answered. It has this many tokens.
    Begun { prompt_tokens: usize },
    /// The next part of the answer.
    Text(String),
    /// The answer is complete.
    Complete {
        /// Its tokens.
        tokens: usize,
        /// Whether it was cut, because it had the most tokens that it may have.
        is_cut: bool,
    },
    /// There is no answer, or it cannot be continued.
    Failed(ApiError),
}

/// A request that the model answers next.
pub struct QueuedRequest {
    /// The request.
    pub request: ChatRequest,
    /// Raised when the client has left.
    pub cancel: Arc<AtomicBool>,
    /// Unbounded, because a slow client must not delay the answers for others. It holds at most
    /// one part for each token.
    events: UnboundedSender<AnswerEvent>,
}

impl QueuedRequest {
    /// Sends an event to the client. Returns whether the client is still there.
    pub fn send(&self, event: AnswerEvent) -> bool {
        self.events.send(event).is_ok() && !self.has_left()
    }

    /// Whether the client has left.
    pub fn has_left(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

/// An answer as its client sees it. When it is dropped, the model stops to generate it.
pub struct PendingAnswer {
    events: UnboundedReceiver<AnswerEvent>,
    cancel: Arc<AtomicBool>,
}

impl PendingAnswer {
    /// Waits for the next event.
    pub async fn next(&mut self) -> AnswerEvent {
        let ended = || AnswerEvent::Failed(ApiError::server("ebb serve was ended"));
        self.events.recv().await.unwrap_or_else(ended)
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
    }
}

/// The end of the queue where requests arrive.
#[derive(Clone)]
pub struct AnswerQueue(Sender<QueuedRequest>);

impl AnswerQueue {
    /// A queue, and the end where the model takes its requests. That end closes when the queue and
    /// its clones are dropped.
    pub fn new() -> (Self, Receiver<QueuedRequest>) {
        let (sender, receiver) = channel(MAX_WAITING);
        (AnswerQueue(sender), receiver)
    }

    /// Adds a request.
    ///
    /// # Errors
    /// Too many requests wait, or the model takes no more.
    pub fn push(&self, request: ChatRequest) -> Result<PendingAnswer, ApiError> {
        let (sender, events) = unbounded_channel();
        let answer = PendingAnswer {
            events,
            cancel: Arc::default(),
        };
        let queued = QueuedRequest {
            request,
            cancel: answer.cancel.clone(),
            events: sender,
        };
        let message = format!(
            "ebb serve answers one request at a time, and {MAX_WAITING} others already wait; ask again later"
        );
        match self.0.try_send(queued) {
            Ok(()) => Ok(answer),
            Err(_) => Err(ApiError::busy(message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::serve::chat_request::Defaults;

    fn request() -> ChatRequest {
        let defaults = Defaults { tokens: 1, seed: 0 };
        let body = br#"{"messages": [{"role": "user", "content": "Hi"}]}"#;
        ChatRequest::parse(body, defaults).expect("it is valid")
    }

    #[test]
    fn the_queue_is_bounded_and_frees_its_places() {
        let (queue, mut model) = AnswerQueue::new();
        let waiting: Vec<_> = (0..MAX_WAITING)
            .map(|_| queue.push(request()).expect("there is a place"))
            .collect();
        let refused = queue.push(request()).err().expect("the queue is full");
        assert_eq!(refused.to_json()["error"]["code"], "rate_limit_exceeded");
        assert!(model.try_recv().is_ok(), "one of them waits");
        assert!(queue.push(request()).is_ok(), "its place is free");
        drop(waiting);
    }

    #[test]
    fn a_client_that_leaves_ends_its_answer() {
        let (queue, mut model) = AnswerQueue::new();
        let answer = queue.push(request()).expect("there is a place");
        let queued = model.try_recv().expect("it waits");
        assert!(queued.send(AnswerEvent::Text("a".to_owned())));
        drop(answer);
        assert!(queued.has_left());
        assert!(!queued.send(AnswerEvent::Text("b".to_owned())));
        drop(queue);
        assert!(model.blocking_recv().is_none(), "the queue is closed");
    }
}
