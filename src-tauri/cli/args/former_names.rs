//! Names of commands, flags and values of earlier versions. They still work, and Ebb then prints a
//! message with the new name.

use clap::{Arg, Command};

/// Returns one sentence for each former name in `arguments`. The first argument must be the one
/// after the name of the program.
pub(super) fn former_names(ebb: &Command, arguments: &[String]) -> Vec<String> {
    let mut command = ebb;
    let mut sentences = Vec::new();
    for (at, argument) in arguments.iter().enumerate() {
        if argument == "--" {
            break;
        }
        let renamed = if let Some(flag) = argument.strip_prefix("--") {
            former_flag(command, flag, arguments.get(at + 1))
        } else if let Some(inner) = command.find_subcommand(argument) {
            command = inner;
            let (former, name) = (argument.clone(), inner.get_name().to_owned());
            (former != name).then(|| (format!("ebb {former}"), format!("ebb {name}")))
        } else {
            None
        };
        if let Some((former, name)) = renamed {
            let sentence = format!("`{former}` is now called `{name}`");
            if !sentences.contains(&sentence) {
                sentences.push(sentence);
            }
        }
    }
    sentences
}

/// The former and the new name of a flag, or of its value; `None` if neither was renamed. `typed`
/// has no dashes; `next` is the argument after it.
fn former_flag(command: &Command, typed: &str, next: Option<&String>) -> Option<(String, String)> {
    let (flag, value) = match typed.split_once('=') {
        Some((flag, value)) => (flag, Some(value)),
        None => (typed, next.map(String::as_str)),
    };
    let arg = command.get_arguments().find(|arg| is_called(arg, flag))?;
    let name = arg.get_long()?;
    if name != flag {
        return Some((format!("--{flag}"), format!("--{name}")));
    }
    let value = value?;
    let known = arg.get_possible_values();
    let known = known.iter().find(|known| known.matches(value, false))?;
    let now = known.get_name();
    (now != value).then(|| (format!("--{name} {value}"), format!("--{name} {now}")))
}

/// Whether this is the name of the flag, or a former one.
fn is_called(arg: &Arg, flag: &str) -> bool {
    let former = arg.get_all_aliases().unwrap_or_default();
    arg.get_long() == Some(flag) || former.contains(&flag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Ebb;
    use clap::CommandFactory;

    fn sentences(line: &str) -> Vec<String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        former_names(&Ebb::command(), &arguments)
    }

    #[test]
    fn a_former_name_is_reported_once_with_the_new_one() {
        assert_eq!(
            sentences("pilot --politeness=0.8 --politeness 0.9"),
            [
                "`ebb pilot` is now called `ebb controller`",
                "`--politeness` is now called `--max-system-fraction`"
            ]
        );
        assert_eq!(
            sentences("train birds --memory-script-by piece"),
            ["`--memory-script-by piece` is now called `--memory-script-by decision`"]
        );
    }

    #[test]
    fn other_arguments_are_not_reported() {
        for line in [
            "",
            "--version",
            "train pilot --max-system-fraction 0.8 --memory-script-by=decision",
            "predict run -- --politeness",
            "runs show drill",
        ] {
            assert_eq!(sentences(line), Vec::<String>::new(), "{line}");
        }
    }
}
