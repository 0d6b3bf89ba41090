//! `ebb chat`: a conversation with a language model, in the terminal or with another program.

use super::args;
use super::chat_input::{ChatInput, Entered};
use super::failure::Failure;
use super::generate::without_carriage_returns;
use super::interrupt;
use super::open_chat_model;
use super::output::{out, status, write_part};
use super::train::find;
use crate::paths::device_check_path;
use crate::signals::EndSignal;
use std::io::{BufRead, IsTerminal, stdin};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use trainer::{ChatModel, DevicePreference};

const HELP: &str = "Write a message and press Return. Put \"\"\" before and after a message of several lines. \
     /reset starts a new conversation, /quit ends the chat.";

/// Runs `ebb chat`. Answers are printed while they are generated. The same input with the same seed
/// gives the same answers.
pub fn run(args: &args::Chat) -> Result<(), Failure> {
    let model = open_chat_model::open(&args.model)?;
    let compared = Compared::open(args)?;
    let options = args.sampling.options(args.tokens as usize);
    let (system, tokens) = (args.system.as_deref(), options.tokens);
    let name = compared.as_ref().map(|it| it.trained.as_str());
    let mut chats = vec![(name, model.start(system, tokens)?)];
    if let Some(compared) = &compared {
        let base = match &compared.model {
            Some(base) => base.start(system, tokens)?,
            None => model.start(system, tokens)?.without_adapters(),
        };
        chats.push((Some(compared.base.as_str()), base));
    }
    let is_terminal = stdin().is_terminal();
    if is_terminal {
        status!("{}. {HELP}", model.device);
    }
    let interrupt = Interrupt::handled()?;
    let mut input = ChatInput::new(stdin().lock());
    loop {
        let message = match read(&mut input, is_terminal)? {
            Read::Message(message) => message,
            Read::Quit => return Ok(()),
            Read::Reset => {
                chats.iter_mut().for_each(|(_, chat)| chat.reset());
                status!("The next message starts a new conversation.");
                continue;
            }
        };
        for (name, chat) in &mut chats {
            if let Some(name) = name {
                out!("{name}:");
            }
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
}

/// What was typed, if the chat has to do something.
enum Read {
    Message(String),
    Reset,
    Quit,
}

/// Reads up to the next message, and explains the chat if that is asked for.
fn read(input: &mut ChatInput<impl BufRead>, is_terminal: bool) -> Result<Read, Failure> {
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
        match entered {
            Entered::Message(message) => return Ok(Read::Message(message)),
            Entered::Reset => return Ok(Read::Reset),
            Entered::Quit => return Ok(Read::Quit),
            Entered::Help => status!("{HELP}"),
            Entered::Unusable(reason) => status!("ebb: {reason}"),
        }
    }
}

/// The model that answers after the one of the chat, to compare the two.
struct Compared {
    /// What the answers of the chat's model are called.
    trained: String,
    /// What its own answers are called.
    base: String,
    /// `None` if it is the chat's model without its adapters.
    model: Option<ChatModel>,
}

impl Compared {
    /// Opens the model of `--compare`: the one that the run started from, unless another one is
    /// named. `None` without `--compare`.
    ///
    /// # Errors
    /// There is no such model, or it cannot chat.
    fn open(args: &args::Chat) -> Result<Option<Self>, Failure> {
        let Some(named) = &args.compare else {
            return Ok(None);
        };
        let choice = &args.model;
        if let Some(base) = named {
            let model = open_chat_model::open(&args::ChatModelChoice {
                model: base.clone(),
                context: choice.context,
                quantize: choice.quantize,
            })?;
            return Ok(Some(Compared {
                trained: choice.model.clone(),
                base: base.clone(),
                model: Some(model),
            }));
        }
        let compared = |model| Compared {
            trained: "After training".to_owned(),
            base: "Before training".to_owned(),
            model,
        };
        let unknown =
            |reason: &str| Failure::usage(format!("{reason}; name another one: --compare MODEL"));
        if open_chat_model::model_folder(&choice.model)?.is_some() {
            return Err(unknown(
                "--compare needs a run, to compare it with the model that it started from",
            ));
        }
        let run = find(&choice.model)?;
        if run.config()?.adapter_rank.is_some() {
            return Ok(Some(compared(None)));
        }
        let (device, check) = (DevicePreference::Auto, device_check_path());
        let base = ChatModel::from_run_base(&run, device, Some(&check), choice.context)?;
        let base = base.ok_or_else(|| {
            unknown("this run started from random weights, so there is no model to compare with")
        })?;
        Ok(Some(compared(Some(base))))
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
