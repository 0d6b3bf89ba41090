//! `ebb evaluate` for a language model and a file of questions: how many of them the model answers
//! correctly, for a run also before its training.

use super::args;
use super::evaluation_progress::with_progress;
use super::failure::Failure;
use super::interrupt::end_with;
use super::limited_lists::FILES_LISTED;
use super::open_chat_model::{model_folder, refuse_to_quantize_a_run};
use super::output::{out, status};
use super::train::find;
use crate::paths::device_check_path;
use crate::question_scores::{Evaluated, asked, measures, summary};
use dataset::{AnswerRule, QuestionFile, QuestionOptions, is_question_file};
use runlog::{RunFolder, TaskChoice, format_count};
use serde_json::json;
use std::path::Path;
use trainer::{DevicePreference, QuestionModel};

/// Whether `ebb evaluate` has to ask questions: of a model, or of a run that is a language model if
/// its data are questions.
pub fn is_asked(args: &args::Evaluate) -> Result<bool, Failure> {
    let is_model = Path::new(&args.run).join("config.json").is_file();
    let holds_questions = args.folder.as_deref().is_some_and(is_question_file);
    if is_model && args.folder.is_none() {
        return Err(Failure::usage(
            "a model that is not a run can only be evaluated on questions; add a .jsonl file with questions and choices or answers",
        ));
    }
    let is_run_of_another_task = || {
        let config = find(&args.run).ok().and_then(|run| run.config().ok());
        let task = config.and_then(|config| config.task);
        task.is_some_and(|task| task != TaskChoice::LanguageModel)
    };
    let is_asked = is_model || (holds_questions && !is_run_of_another_task());
    if !is_asked && (args.letters || args.extract.is_some() || args.quantize.is_some()) {
        return Err(Failure::usage(
            "--letters, --extract and --quantize are for a language model and a .jsonl file of questions",
        ));
    }
    if is_asked && args.baseline {
        return Err(Failure::usage(
            "a language model has no baseline; remove --baseline",
        ));
    }
    Ok(is_asked)
}

/// Asks the questions.
pub fn run(args: &args::Evaluate) -> Result<(), Failure> {
    let rule = AnswerRule::new(args.extract.as_deref());
    let rule = rule.map_err(|reason| Failure::usage(format!("--extract is an {reason}")))?;
    let options = QuestionOptions {
        letters: args.letters,
        tokens: args.tokens as usize,
        rule,
    };
    let path = args.folder.as_deref().unwrap_or(Path::new(""));
    let file = QuestionFile::check(path).map_err(trainer::TrainError::from)?;
    end_with("the evaluation was stopped, so there is no result")?;
    let evaluated = match model_folder(&args.run)? {
        Some(folder) => vec![of_folder(args, &folder, &file, &options)?],
        None => {
            refuse_to_quantize_a_run(args.quantize)?;
            of_run(&find(&args.run)?, &file, &options)?
        }
    };
    for (line, reason) in file.reasons.iter().take(FILES_LISTED) {
        status!("Skipped line {}: this row {reason}", format_count(*line));
    }
    let asked = evaluated.last().map(|evaluated| &evaluated.scores);
    let refused = asked.map_or(&[][..], |scores| &scores.reasons);
    for (line, reason) in refused.iter().take(FILES_LISTED) {
        status!("Skipped line {}: this row {reason}", format_count(*line));
    }
    if args.json {
        print_json(&file, &evaluated);
    } else {
        print_table(&file, &evaluated);
    }
    Ok(())
}

fn of_folder(
    args: &args::Evaluate,
    folder: &Path,
    file: &QuestionFile,
    options: &QuestionOptions,
) -> Result<Evaluated, Failure> {
    let (device, check) = (DevicePreference::Auto, device_check_path());
    let model = QuestionModel::from_folder(folder, args.quantize, file, device, Some(&check))?;
    evaluated("model", &model, file, options)
}

/// The base and the run, one after the other, so that only one of them is in memory.
fn of_run(
    run: &RunFolder,
    file: &QuestionFile,
    options: &QuestionOptions,
) -> Result<Vec<Evaluated>, Failure> {
    let (device, check) = (DevicePreference::Auto, device_check_path());
    let base = QuestionModel::from_run_base(run, file, device, Some(&check))?;
    let before = match base {
        Some(base) => Some(evaluated("before", &base, file, options)?),
        None => None,
    };
    let model = QuestionModel::from_run(run, file, device, Some(&check))?;
    let name = if before.is_some() { "after" } else { "model" };
    let after = evaluated(name, &model, file, options)?;
    Ok(before.into_iter().chain([after]).collect())
}

fn evaluated(
    name: &'static str,
    model: &QuestionModel,
    file: &QuestionFile,
    options: &QuestionOptions,
) -> Result<Evaluated, Failure> {
    let scores = with_progress(&model.progress, || model.evaluate(file, options))?;
    Ok(Evaluated { name, scores })
}

fn print_table(file: &QuestionFile, evaluated: &[Evaluated]) {
    out!("{}", summary(file, evaluated));
    let all: Vec<_> = evaluated.iter().map(|it| measures(&it.scores)).collect();
    let shown = |row: usize| all.iter().any(|measures| measures[row].2.is_some());
    let rows: Vec<usize> = (0..3).filter(|row| shown(*row)).collect();
    let Some(first) = all.first() else { return };
    let widest = rows.iter().map(|row| first[*row].0.len()).max();
    let widest = widest.unwrap_or(0);
    let names = evaluated.iter().map(|it| format!("{:>9}", it.name));
    out!("{:widest$}{}", "", names.collect::<String>());
    for row in rows {
        let cells = all.iter().map(|measures| match measures[row].2 {
            Some(share) => format!("{:>7.1} %", 100.0 * share),
            None => format!("{:>9}", "-"),
        });
        out!("{:widest$}{}", first[row].0, cells.collect::<String>());
    }
}

fn print_json(file: &QuestionFile, evaluated: &[Evaluated]) {
    let results = evaluated.iter().map(|it| {
        let mut result = json!({"model": it.name, "skipped": it.scores.skipped});
        for (_, name, share) in measures(&it.scores) {
            result[name] = json!(share);
        }
        result
    });
    let (choices, answers) = asked(evaluated);
    let line = json!({
        "choices": choices,
        "answers": answers,
        "skipped": file.skipped,
        "results": results.collect::<Vec<_>>(),
    });
    out!("{line}");
}
