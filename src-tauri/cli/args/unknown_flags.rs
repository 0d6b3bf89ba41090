//! The tip below the error for a flag that does not exist.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use runlog::nearest;

/// Flags that users look for, and what Ebb has instead.
const INSTEAD: [(&str, &str); 2] = [
    (
        "--name",
        "Ebb names a run after its data; rename the run in the window, or tag it: ebb runs tag RUN +TAG",
    ),
    (
        "--host",
        "ebb serve answers only programs on this machine, at 127.0.0.1; from another machine, use a tunnel: ssh -L 8080:127.0.0.1:8080 HOST",
    ),
];

/// Removes the tip to use another flag if this flag is not similar enough to the unknown one. Adds
/// advice for some unknown flags.
pub(super) fn with_sensible_tip(mut error: Error) -> Error {
    let typed = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(typed)) if error.kind() == ErrorKind::UnknownArgument => {
            typed.clone()
        }
        _ => return error,
    };
    let name = |flag: &str| flag.trim_start_matches('-').to_owned();
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::SuggestedArg)
        && nearest(&name(&typed), [name(flag).as_str()]).is_none()
    {
        error.remove(ContextKind::SuggestedArg);
    }
    if let Some((_, instead)) = INSTEAD.iter().find(|(flag, _)| *flag == typed) {
        let tips = ContextValue::StyledStrs(vec![(*instead).into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Ebb;
    use clap::CommandFactory;

    fn refusal(line: &str) -> String {
        let words = ["ebb"].into_iter().chain(line.split_whitespace());
        let error = Ebb::command().try_get_matches_from(words);
        with_sensible_tip(error.expect_err("there is no such flag")).to_string()
    }

    #[test]
    fn only_a_similar_flag_is_suggested() {
        let text = refusal("train birds --learning-rat 0.1");
        assert!(text.contains("'--learning-rate'"), "{text}");
        let text = refusal("train birds --name owls");
        assert!(!text.contains("similar argument"), "{text}");
        assert!(text.contains("ebb runs tag RUN +TAG"), "{text}");
        let text = refusal("serve birds --host 0.0.0.0");
        assert!(text.contains("only programs on this machine"), "{text}");
    }
}
