//! `ebb branch`: a new run that starts from the weights of another one, with changed settings.

use super::args;
use super::failure::Failure;
use super::launched_group::refuse_group;
use super::output::status;
use super::progress::Progress;
use super::train::{create, discard_unstarted, find, run_context};
use runlog::RunConfig;
use trainer::{Branch, BranchFrom, RunContext};

/// Runs `ebb branch`.
pub fn run(args: &args::Branch) -> Result<(), Failure> {
    refuse_group("ebb branch")?;
    let origin = find(&args.run)?;
    let (changes, notes) = RunConfig::from_assignments(args.set.iter().map(String::as_str))?;
    for note in notes {
        status!("{note}");
    }
    let which = if args.newest {
        BranchFrom::Newest
    } else {
        BranchFrom::Best
    };
    let branch = Branch::open(&origin, which, changes)?;
    branch.plan.check_start()?;
    let mut progress = Progress::new(args.json);
    let context = RunContext {
        live: progress.live(),
        ..run_context(&args.script, None)?
    };
    let run = create(args.out.as_deref(), &branch.plan.name, &branch.plan.folder)?;
    let from = branch.origin().to_owned();
    let mut is_announced = args.json;
    branch
        .train(&run, context, &mut |event| {
            if !std::mem::replace(&mut is_announced, true) {
                status!("Run: {}", run.path.display());
                status!("The new run starts from the weights of {from}");
            }
            progress.receive(event);
        })
        .map_err(|error| discard_unstarted(&run, error))?;
    Ok(())
}
