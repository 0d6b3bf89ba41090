//! `ebb chat`: a conversation with a language model, in the terminal or with another program.

use super::args;
use super::chat_input::{ChatInput, Entered};
use super::failure::Failure;
use super::generate::without_carriage_returns;
use super::interrupt;
use super::output::{out, status, write_part};
use super::train::find;
use super::weights_from_hub::downloaded;
use crate::paths::device_check_path;
use std::io::{IsTerminal, stdin};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use trainer::{ChatModel, DevicePreference};

const HELP: &str = "Write a message and press Return. A message of several lines stands between two \"\"\". \
     /reset forgets the conversation, /quit ends it.";

/// Runs `ebb chat`. Answers are printed while they are generated. The same input with the same seed
/// gives the same answers.
pub fn run(args: &args::Chat) -> Result<(), Failure> {
    let model = open(args)?;
    let mut chat = model.start(args.system.as_deref())?;
    let options = args.sampling.options(args.tokens as usize);
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
                status!("The conversation is forgotten.");
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
        let reply = chat.answer(&message, &options, |text| {
            is_closed = !write_part(&without_carriage_returns(text));
            if is_closed || interrupt.is_asked() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        interrupt.end();
        if reply.refusal.is_none() {
            out!("");
        }
        for note in reply.refusal.into_iter().chain(reply.notes) {
            status!("ebb: {note}");
        }
        if is_closed {
            return Ok(());
        }
    }
}

/// Loads the run or the model.
fn open(args: &args::Chat) -> Result<ChatModel, Failure> {
    let (device, check, context) = (DevicePreference::Auto, device_check_path(), args.context);
    if let Some(folder) = model_folder(&args.model)? {
        let model = ChatModel::from_folder(&folder, args.quantize, device, Some(&check), context);
        return Ok(model?);
    }
    if args.quantize.is_some() {
        return Err(Failure::usage(
            "--quantize is only for model folders; a run keeps the weights that it trained with",
        ));
    }
    let run = find(&args.model)?;
    Ok(ChatModel::from_run(&run, device, Some(&check), context)?)
}

/// The folder of a model; `None` if the text names a run.
pub fn model_folder(text: &str) -> Result<Option<PathBuf>, Failure> {
    let path = Path::new(text);
    if path.join("config.json").is_file() {
        return Ok(Some(path.to_owned()));
    }
    match find(text) {
        Ok(_) => Ok(None),
        Err(failure) => match downloaded(path)? {
            Some(folder) => Ok(Some(folder)),
            None => Err(failure),
        },
    }
}

/// An interrupt ends the answer that is being generated; otherwise it ends the command.
struct Interrupt {
    is_answering: Arc<AtomicBool>,
    is_asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Handles interrupts from now on.
    fn handled() -> Result<Self, Failure> {
        let this = Interrupt {
            is_answering: Arc::default(),
            is_asked: Arc::default(),
        };
        let (is_answering, is_asked) = (this.is_answering.clone(), this.is_asked.clone());
        interrupt::on_interrupt(move || {
            let is_second = is_asked.swap(true, Ordering::SeqCst);
            if is_second || !is_answering.load(Ordering::SeqCst) {
                status!("");
                std::process::exit(0);
            }
        })?;
        Ok(this)
    }

    fn begin(&self) {
        self.is_asked.store(false, Ordering::SeqCst);
        self.is_answering.store(true, Ordering::SeqCst);
    }

    fn end(&self) {
        self.is_answering.store(false, Ordering::SeqCst);
        self.is_asked.store(false, Ordering::SeqCst);
    }

    fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::SeqCst)
    }
}
