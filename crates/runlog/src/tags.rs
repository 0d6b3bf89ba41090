//! Tags of a run: short words that a person gives it, to find it again.

use crate::RunlogError;
use crate::amounts::counted;

/// Longest tag, in characters.
const MAX_CHARS: usize = 40;
/// Most tags of one run.
const MAX_TAGS: usize = 20;

/// Reads one tag as a person writes it: spaces around it and a `#` before it are left out.
///
/// # Errors
/// It is empty, too long, or contains a comma or a control character.
pub fn parse_tag(text: &str) -> Result<String, RunlogError> {
    let text = text.trim();
    let tag = text.strip_prefix('#').unwrap_or(text).trim();
    let refused = |reason: String| {
        Err(RunlogError::InvalidTag {
            tag: printable(text),
            reason,
        })
    };
    let chars = tag.chars().count();
    if tag.is_empty() {
        refused("a tag needs at least one letter or digit".to_owned())
    } else if chars > MAX_CHARS {
        refused(format!(
            "a tag may have at most {MAX_CHARS} characters, but this tag has {chars}"
        ))
    } else if tag.chars().any(char::is_control) {
        refused("it contains a control character".to_owned())
    } else if tag.contains(',') {
        refused("it contains a comma, which separates tags".to_owned())
    } else {
        Ok(tag.to_owned())
    }
}

/// Reads all tags of a run.
///
/// # Errors
/// One of them is refused, one is there twice, or there are too many.
pub fn parse_tags<'t>(
    texts: impl IntoIterator<Item = &'t str>,
) -> Result<Vec<String>, RunlogError> {
    texts.into_iter().try_fold(Vec::new(), added)
}

/// Changes the tags of a run: `+tag` adds a tag and `-tag` removes one.
///
/// # Errors
/// As [`parse_tags`]; a change has no sign, or removes a tag that the run does not have.
pub fn change_tags<'t>(
    tags: Vec<String>,
    changes: impl IntoIterator<Item = &'t str>,
) -> Result<Vec<String>, RunlogError> {
    let apply = |tags: Vec<String>, change: &'t str| match change.split_at_checked(1) {
        Some(("+", tag)) => added(tags, tag),
        Some(("-", tag)) => removed(tags, tag),
        _ => Err(RunlogError::InvalidTag {
            tag: printable(change),
            reason: "write +TAG to add a tag, or -TAG to remove one".to_owned(),
        }),
    };
    changes.into_iter().try_fold(tags, apply)
}

/// Whether two tags are the same: upper and lower case make no difference.
pub fn same_tag(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// The text as an error can show it.
fn printable(text: &str) -> String {
    let shown = text.chars().filter(|c| !c.is_control());
    shown.take(MAX_CHARS).collect()
}

fn added(mut tags: Vec<String>, text: &str) -> Result<Vec<String>, RunlogError> {
    let tag = parse_tag(text)?;
    let refused = |reason| {
        Err(RunlogError::InvalidTag {
            tag: tag.clone(),
            reason,
        })
    };
    if tags.iter().any(|known| same_tag(known, &tag)) {
        return refused("the run has this tag already".to_owned());
    }
    if tags.len() == MAX_TAGS {
        return refused(format!(
            "a run can have at most {}",
            counted(MAX_TAGS as u64, "tag", "tags")
        ));
    }
    tags.push(tag);
    Ok(tags)
}

fn removed(mut tags: Vec<String>, text: &str) -> Result<Vec<String>, RunlogError> {
    let tag = parse_tag(text)?;
    let Some(at) = tags.iter().position(|known| same_tag(known, &tag)) else {
        let reason = if tags.is_empty() {
            "the run has no tags".to_owned()
        } else {
            let own = tags.join(", ");
            format!("the run does not have this tag; its tags are {own}")
        };
        return Err(RunlogError::InvalidTag { tag, reason });
    };
    tags.remove(at);
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(tags: &[&str], changes: &[&str]) -> Result<Vec<String>, String> {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        change_tags(tags, changes.iter().copied()).map_err(|error| error.to_string())
    }

    #[test]
    fn tags_are_added_and_removed_in_order() {
        let check = |tags: &[&str], changes: &[&str], expected: &[&str]| {
            let expected = expected.iter().map(|tag| (*tag).to_owned()).collect();
            assert_eq!(changed(tags, changes), Ok(expected), "{tags:?} {changes:?}");
        };
        check(&[], &["+garden", "+ #Final "], &["garden", "Final"]);
        check(&["garden", "Final"], &["-final", "+v2"], &["garden", "v2"]);
        check(&["v2"], &["-v2", "+V2"], &["V2"]);
        check(&[], &["+nach dem Umzug"], &["nach dem Umzug"]);
    }

    #[test]
    fn a_tag_that_cannot_be_used_is_refused_with_a_reason() {
        let check = |tags: &[&str], change: &str, reason: &str| {
            let message = changed(tags, &[change]).expect_err(change);
            assert!(message.contains(reason), "{message}");
        };
        check(&[], "+", "at least one letter");
        check(&[], "+ # ", "at least one letter");
        check(&[], &format!("+{}", "x".repeat(41)), "this tag has 41");
        check(&[], "+a\u{7}b", "control character");
        check(&[], "+a,b", "a comma, which separates");
        check(&["final"], "+FINAL", "has this tag already");
        check(&["a", "b"], "-c", "its tags are a, b");
        check(&[], "-c", "the run has no tags");
        check(&[], "garden", "write +TAG");
        check(&[], "", "write +TAG");
        let many: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        check(&many, "+one", "at most 20 tags");
    }
}
