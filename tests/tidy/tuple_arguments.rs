//! Functions take values or structs, not tuples or arrays that they take apart in their argument
//! list. Closures may: an iterator hands them tuples.

use crate::none;
use crate::sources::{Source, rust_sources};

/// Pairs that are one value. Their type has a name.
const NAMED: &[&str] = &["BackendCoord", "Point", "Span"];
const KEYWORD: &str = "fn ";

fn is_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the bracketed text at the start of `text`, which must begin with a bracket. `None`
/// if the bracket is not closed.
fn bracketed(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            // Not an arrow.
            '>' if !text[..at].ends_with(['-', '=']) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + c.len_utf8());
        }
    }
    None
}

/// The arguments of a list, given without its parentheses.
fn split(list: &str) -> Vec<&str> {
    let (mut arguments, mut begin, mut at) = (Vec::new(), 0, 0);
    while let Some(c) = list[at..].chars().next() {
        match c {
            '(' | '[' | '{' | '<' => at += bracketed(&list[at..]).unwrap_or(list.len() - at),
            ',' => {
                arguments.push(&list[begin..at]);
                at += 1;
                begin = at;
            }
            _ => at += c.len_utf8(),
        }
    }
    arguments.push(&list[begin..]);
    arguments
}

/// The arguments of the function whose name begins `text`. `None` if there is no such name.
fn arguments(text: &str) -> Option<Vec<&str>> {
    let after_name = text.trim_start_matches(is_of_a_name);
    let list = if after_name.starts_with('<') {
        &after_name[bracketed(after_name)?..]
    } else {
        after_name
    };
    if after_name.len() == text.len() || !list.starts_with('(') {
        return None;
    }
    Some(split(&list[1..bracketed(list)? - 1]))
}

/// True for the pattern of a tuple or an array, unless its type has a name.
fn is_taken_apart(argument: &str) -> bool {
    let pattern = argument.trim().trim_start_matches('&');
    if !pattern.starts_with(['(', '[']) {
        return false;
    }
    let after = bracketed(pattern).map_or("", |end| pattern[end..].trim_start());
    let type_name = after.trim_start_matches(':').trim();
    !NAMED.contains(&type_name.trim_start_matches('&'))
}

fn tuple_arguments(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        let is_comment = |line: &str| line.trim_start().starts_with("//");
        let lines = source.text.lines();
        let lines = lines.map(|line| if is_comment(line) { "" } else { line });
        let code = lines.collect::<Vec<_>>().join("\n");
        for (at, _) in code.match_indices(KEYWORD) {
            let text = &code[at + KEYWORD.len()..];
            if code[..at].ends_with(is_of_a_name) {
                continue;
            }
            let arguments = arguments(text).unwrap_or_default().into_iter();
            for argument in arguments.filter(|argument| is_taken_apart(argument)) {
                complaints.push(format!(
                    "{}:{}: pass `{}` as separate arguments or as a struct",
                    source.path,
                    code[..at].matches('\n').count() + 1,
                    argument.trim()
                ));
            }
        }
    }
    complaints
}

#[test]
fn functions_take_no_tuples_or_arrays_apart() {
    none(&tuple_arguments(&rust_sources()));
}

#[test]
fn a_planted_tuple_argument_is_named() {
    // Put together here, because this file is checked too.
    let found = |signature: &str| {
        let text = format!("impl A {{\n    pub {KEYWORD}planted{signature} {{}}\n}}\n");
        tuple_arguments(&[Source {
            path: "planted.rs".into(),
            text,
        }])
    };
    assert_eq!(
        found("(&self, (a, b): (u8, u8)) -> u8"),
        ["planted.rs:2: pass `(a, b): (u8, u8)` as separate arguments or as a struct"]
    );
    for refused in [
        "<F: Fn(u8) -> u8>(f: F, (a, b): (u8, [u8; 2]), c: u8)",
        "(\n        // Two values.\n        &(a, b): &(u8, u8),\n    )",
        "((a, b): (u8, Vec<(u8, u8)>))",
        "([a, b]: [u8; 2])",
        "(\n        &mut self,\n        [a, b]: &[u8; 2],\n    )",
    ] {
        assert_eq!(found(refused).len(), 1, "{refused}");
    }
    for allowed in [
        "(&self, a: (u8, u8), f: impl Fn((u8, u8)) -> u8)",
        "((x, y): Point, ab: [u8; 2])",
        "(a: u8) { let sum = |(a, b): (u8, u8)| a + b; }",
        "()",
    ] {
        assert_eq!(found(allowed), Vec::<String>::new(), "{allowed}");
    }
}
