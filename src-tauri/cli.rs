//! Ebb in the terminal: parses the command line and runs one command. Exit codes: 0 done or stopped
//! by request, 1 failure, 2 wrong usage.

mod output;
mod config_file;
mod hosts;
mod args;
mod doctor;
mod completions;
mod stress;
mod read_folder;
mod train_once;
mod bench;
mod weights_from_hub;
mod branch;
mod chat;
mod chat_input;
mod open_chat_model;
mod serve;
mod compare_controller;
mod evaluate;
mod evaluate_questions;
mod evaluation_progress;
mod export;
mod failure;
mod find_lr;
mod generate;
mod inspect;
mod interrupt;
mod launched_group;
mod cluster;
mod memory;
mod plan;
mod controller;
mod predict;
mod preset_choice;
mod progress;
mod runs;
mod runs_archive;
mod runs_edit;
mod runs_show;
mod scripted_machine;
mod sweep_batch;
mod inspect_duplicates;
mod conversation_examples;
mod inspect_texts;
mod limited_lists;
mod train;
mod tune;
mod verify_split;

use args::{Command, Ebb};
use std::process::ExitCode;

/// Runs the command that the user typed. `ebb app`, and `ebb` without a command, open the window.
pub fn run() -> ExitCode {
    let ebb = Ebb::parse_args();
    let done = match ebb.command {
        None => return app(args::App::default()),
        Some(Command::App(app_args)) => return app(app_args),
        Some(Command::Inspect(args)) => inspect::run(&args),
        Some(Command::Plan(args)) => plan::run(&args),
        Some(Command::Train(args)) => train::start(*args),
        Some(Command::Resume(args)) => train::resume(args),
        Some(Command::Branch(args)) => branch::run(&args),
        Some(Command::Evaluate(args)) => evaluate::run(&args),
        Some(Command::Predict(args)) => predict::run(&args),
        Some(Command::Generate(args)) => generate::run(&args),
        Some(Command::Chat(args)) => chat::run(&args),
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Export(args)) => export::run(&args),
        Some(Command::Cluster(args)) => cluster::run(&args),
        Some(Command::Runs(args)) => match args.command {
            None => runs::list(&args),
            Some(args::RunsCommand::Show(args)) => runs_show::run(&args),
            Some(args::RunsCommand::Tag(args)) => runs::tag(&args),
            Some(args::RunsCommand::Rename(args)) => runs_edit::rename(&args),
            Some(args::RunsCommand::Note(args)) => runs_edit::note(&args),
            Some(args::RunsCommand::Trash(args)) => runs_edit::trash(&args),
            Some(args::RunsCommand::Export(args)) => runs_archive::export(&args),
            Some(args::RunsCommand::Import(args)) => runs_archive::import(&args),
        },
        Some(Command::Report(args)) => runs::report(&args),
        Some(Command::Memory(args)) => memory::run(&args),
        Some(Command::Controller(args)) => controller::run(&args),
        Some(Command::Stress(args)) => stress::run(&args),
        Some(Command::StressHold(args)) => stress::hold_memory(&args),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::VerifySplit(args)) => verify_split::run(&args),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::SweepBatch(args)) => sweep_batch::run(&args),
        Some(Command::FindLr(args)) => find_lr::run(&args),
        Some(Command::Tune(args)) => tune::run(&args),
        Some(Command::Completions(args)) => completions::completions(&args),
        Some(Command::Man) => completions::man(),
    };
    let lost = || match output::lost() {
        Some(error) => Err(failure::Failure::new(format!(
            "the output could not be written: {}",
            runlog::format_io_error(&error)
        ))),
        None => Ok(()),
    };
    match done.and_then(|()| lost()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.print(),
    }
}

#[cfg(feature = "desktop")]
fn app(args: args::App) -> ExitCode {
    let machine = train::machine(&args.script);
    crate::app_window::run(args.target, machine)
}

#[cfg(not(feature = "desktop"))]
fn app(_args: args::App) -> ExitCode {
    failure::Failure::usage(
        "this build has no window; train with `ebb train FOLDER`, or see `ebb --help`",
    )
    .print()
}
