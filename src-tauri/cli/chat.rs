//! `ebb chat`: a conversation with a language model, in the terminal or with another program.

use super::args;
use super::chat_input::{ChatInput, Entered};
use super::failure::Failure;
use super::generate::without_carriage_returns;
use super::interrupt;
use super::open_chat_model;
use super::output::{out, status, write_part};
use crate::signals::EndSignal;
use std::io::{IsTerminal, stdin};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const HELP: &str = "Write a message and press Return. Put \"\"\" before and after a message of several lines. \
     /reset starts a new conversation, /quit ends the chat.";

/// Runs `ebb chat`. Answers are printed while they are generated. The same input with the same seed
/// gives the same answers.
pub fn run(args: &args::Chat) -> Result<(), Failure> {
    let model = open_chat_model::open(&args.model)?;
    let options = args.sampling.options(args.tokens as usize);
    let mut chat = model.start(args.system.as_deref(), options.tokens)?;
    let is_terminal = stdin().is_terminal();
    if is_terminal {
        status!("{}. {HELP}", model.device);
    }
    let interrupt = Interrupt::handled()?;
    let mut input = ChatInput::new(stdin().lock());
    let prompt = |text: &str| {
        if is_terminal {
            write_part(text);
        }
    };
    loop {
        prompt("> ");
        let entered = input.next(|| prompt(". ")).map_err(|error| {
            let reason = runlog::format_io_error(&error);
            Failure::new(format!("the messages cannot be read: {reason}"))
        })?;
        let message = match entered {
            Entered::Message(message) => message,
            Entered::Reset => {
                chat.reset();
                status!("The next message starts a new conversation.");
                continue;
            }
            Entered::Help => {
                status!("{HELP}");
                continue;
            }
            Entered::Unusable(reason) => {
                status!("ebb: {reason}");
                continue;
            }
            Entered::Quit => return Ok(()),
        };
        let mut is_closed = false;
        interrupt.begin();
        let reply = chat.answer(&message, &options, &interrupt.cancel, |text| {
            is_closed = !write_part(&without_carriage_returns(text));
            if is_closed || interrupt.cancel.load(Ordering::SeqCst) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        interrupt.end();
        if reply.refusal.is_none() {
            out!("");
        }
        print_notes(reply.refusal, reply.notes, reply.is_cut);
        if is_closed || interrupt.is_ending() {
            return Ok(());
        }
    }
}

/// Prints why there is no answer, and what the user should know about one. If the answer `is_cut`,
/// the last note is about its limit.
fn print_notes(refusal: Option<String>, mut notes: Vec<String>, is_cut: bool) {
    if let Some(note) = notes.last_mut().filter(|_| is_cut) {
        note.push_str("; --tokens sets this limit");
    }
    for note in refusal.into_iter().chain(notes) {
        status!("ebb: {note}");
    }
}

/// Ctrl-C ends the answer that is being generated; if there is none, it ends the command. Any other
/// signal ends both.
struct Interrupt {
    is_answering: Arc<AtomicBool>,
    /// Raised to end the answer.
    cancel: Arc<AtomicBool>,
    /// Whether the command ends with the answer.
    is_ending: Arc<AtomicBool>,
}

impl Interrupt {
    /// Handles signals from now on.
    fn handled() -> Result<Self, Failure> {
        let this = Interrupt {
            is_answering: Arc::default(),
            cancel: Arc::default(),
            is_ending: Arc::default(),
        };
        let (is_answering, cancel) = (this.is_answering.clone(), this.cancel.clone());
        let is_ending = this.is_ending.clone();
        interrupt::on_end_signal(move |signal| {
            if signal != EndSignal::Interrupt {
                is_ending.store(true, Ordering::SeqCst);
            }
            let is_second = cancel.swap(true, Ordering::SeqCst);
            if is_second || !is_answering.load(Ordering::SeqCst) {
                status!("");
                std::process::exit(0);
            }
        })?;
        Ok(this)
    }

    fn begin(&self) {
        self.cancel.store(false, Ordering::SeqCst);
        self.is_answering.store(true, Ordering::SeqCst);
    }

    fn end(&self) {
        self.is_answering.store(false, Ordering::SeqCst);
        self.cancel.store(false, Ordering::SeqCst);
    }

    /// Whether a signal asked the command to end during the answer.
    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }
}
