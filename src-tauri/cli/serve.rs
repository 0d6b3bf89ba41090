//! `ebb serve`: answers other programs on this machine with a language model, through the OpenAI
//! chat API. Only this command opens a port, and only for this machine.
//!
//! The server has a thread of its own. The model answers on the main thread, one request after the
//! other.

mod api_error;
mod browser_guard;
mod chat_request;
mod responses;
mod answer_queue;
mod http_server;

use super::args;
use super::failure::Failure;
use super::interrupt::on_end_signal;
use super::open_chat_model;
use super::output::{out, status};
use answer_queue::{AnswerEvent, AnswerQueue, QueuedRequest};
use api_error::ApiError;
use http_server::Server;
use runlog::counted;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::exit;
use std::thread;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use trainer::ChatModel;

/// Runs `ebb serve` until a signal ends it.
pub fn run(args: &args::Serve) -> Result<(), Failure> {
    // A port that cannot be opened is reported before the model is loaded.
    let listener = bind(args.port)?;
    let address = listener.local_addr().map_err(no_server)?;
    let model = open_chat_model::open(&args.model)?;
    let name = model_name(&args.model.model);
    let (queue, mut waiting) = AnswerQueue::new();
    let server = Server::new(queue, name.clone(), args.tokens as usize);
    let (stop, stopped) = oneshot::channel();
    let mut stop = Some(stop);
    on_end_signal(move |_| match stop.take() {
        Some(stop) => {
            let _ = stop.send(());
        }
        None => exit(0),
    })?;
    let thread = thread::Builder::new().name("server".into());
    let thread = thread
        .spawn(move || serve(listener, server, stopped))
        .map_err(no_server)?;
    status!("{}. Press Ctrl-C to end.", model.device);
    out!("The model {name} answers at http://{address}/v1");
    while let Some(queued) = waiting.blocking_recv() {
        answer(&model, &queued);
        if waiting.is_empty() {
            model.free_unused_memory();
        }
    }
    match thread.join() {
        Ok(served) => served.map_err(no_server),
        Err(_) => Err(Failure::new("the server failed")),
    }
}

fn bind(port: u16) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
        let next = match error.kind() {
            ErrorKind::AddrInUse => "another program uses it",
            ErrorKind::PermissionDenied => "ports below 1024 are for the system",
            _ => return no_server(error),
        };
        Failure::new(format!(
            "port {port} of this machine cannot be opened: {next}; choose another one with --port"
        ))
    })?;
    listener.set_nonblocking(true).map_err(no_server)?;
    Ok(listener)
}

fn no_server(error: io::Error) -> Failure {
    let reason = runlog::format_io_error(&error);
    Failure::new(format!("ebb cannot answer other programs: {reason}"))
}

/// The name of the model for clients: that of its folder, or what the user named.
fn model_name(text: &str) -> String {
    let path = Path::new(text);
    let name = path.file_name().filter(|_| path.exists());
    name.map_or_else(
        || text.to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// Answers requests until `stopped`. Then all connections are closed.
fn serve(listener: TcpListener, server: Server, stopped: oneshot::Receiver<()>) -> io::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::select! {
            served = axum::serve(listener, server.into_router()).into_future() => served,
            _ = stopped => Ok(()),
        }
    })
}

fn answer(model: &ChatModel, queued: &QueuedRequest) {
    if queued.has_left() {
        return;
    }
    let last = complete(model, queued).unwrap_or_else(AnswerEvent::Failed);
    if let (AnswerEvent::Complete { tokens, .. }, true) = (&last, queued.has_left()) {
        let tokens = counted(*tokens as u64, "token", "tokens");
        status!("A program closed its connection. Its answer ended after {tokens}.");
    }
    queued.send(last);
}

/// Generates an answer, and returns its last event.
fn complete(model: &ChatModel, queued: &QueuedRequest) -> Result<AnswerEvent, ApiError> {
    let request = &queued.request;
    let prompt = model.prompt(&request.messages()).map_err(|refused| {
        if refused.is_too_long {
            ApiError::too_long(refused.reason)
        } else {
            ApiError::parameter("messages", refused.reason)
        }
    })?;
    queued.send(AnswerEvent::Begun {
        prompt_tokens: prompt.len(),
    });
    let options = &request.options;
    let completed = model.complete(prompt, options, &queued.cancel, |text| {
        if queued.send(AnswerEvent::Text(text.to_owned())) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    let completed = completed.map_err(|error| ApiError::server(error.to_string()))?;
    Ok(AnswerEvent::Complete {
        tokens: completed.tokens,
        is_cut: completed.is_cut,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_see_the_name_of_a_folder_and_not_its_path() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("llama");
        std::fs::create_dir(&path).expect("it can be created");
        assert_eq!(model_name(&path.to_string_lossy()), "llama");
        assert_eq!(model_name("organisation/model"), "organisation/model");
        assert_eq!(model_name("chats"), "chats");
    }
}
