//! The chat template of a model: a Jinja template that writes a conversation as the text that the
//! model was trained on. It is rendered like in transformers, by MiniJinja with the methods of
//! Python. Templates are not trusted: a rendering has a budget for its steps and for the data that
//! it visits and creates. MiniJinja does not count all of them: `template_costs.rs` adds what its
//! methods visit, and `template_operands.rs` what its operators, filters and tests visit.

use super::python_json::to_python_json;
use super::template_costs::{affordable_bytes, call_method, charge_visits};
use super::template_operands::{add_functions, with_checks, with_variable_products};
use jiff::civil::date;
use jiff::fmt::strtime;
use minijinja::machinery::{eval, get_compiled_template, make_string_output};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, State, Value};
use std::collections::BTreeMap;

/// Limits the time of a rendering, and its memory to about 64 bytes for each unit.
const FUEL: u64 = 4_000_000;
/// Most bytes of a template. The largest published ones have about 20,000.
const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Names of the templates in the environment.
const DEFAULT: &str = "chat template";
const WITH_TOOLS: &str = "chat template for tools";
/// Characters around text that the template marks as written by the assistant. They are no
/// characters of any language.
pub(super) const BEGIN: char = '\u{FDD0}';
pub(super) const END: char = '\u{FDD1}';
/// Both of them. A conversation that contains one would be marked at the wrong place.
pub(crate) const MARKS: [char; 2] = [BEGIN, END];
/// ChatML, for models that Ebb trains from scratch.
const CHATML: &str = "\
{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|im_end|>
{% endgeneration %}{% else %}{{ message.content }}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}";

/// A chat template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// Names of special tokens, each with its text.
    tokens: BTreeMap<String, String>,
    has_template_for_tools: bool,
    marks_answers: bool,
    source: String,
    default_source: String,
}

impl ChatTemplate {
    /// Compiles a template, and the one that is used for conversations with tools. `tokens` are
    /// the special tokens that it may write, such as `bos_token`.
    ///
    /// # Errors
    /// A template is not valid. The error is the end of a sentence.
    pub fn new(
        source: &str,
        with_tools: Option<&str>,
        tokens: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        let syntax = syntax.map_err(|error| describe(&error))?;
        environment.set_syntax(syntax.clone());
        environment.set_unknown_method_callback(call_method);
        environment.set_fuel(Some(FUEL));
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.add_filter("tojson", to_json);
        environment.add_test("iterable", is_iterable);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_function("mark_answer", mark_answer);
        add_functions(&mut environment);
        let sources = [(DEFAULT, Some(source)), (WITH_TOOLS, with_tools)];
        for (name, source) in sources {
            let Some(source) = source else { continue };
            if source.len() > MAX_SOURCE_BYTES {
                return Err("the template is longer than 1 MB".to_owned());
            }
            let source = with_marks(source);
            let compiled = with_variable_products(&source, syntax.clone())
                .and_then(|source| environment.add_template_owned(name, source));
            compiled.map_err(|error| describe(&error))?;
        }
        let all = sources.into_iter().filter_map(|(_, source)| source);
        let all: Vec<&str> = all.collect();
        Ok(ChatTemplate {
            environment,
            tokens: tokens.clone(),
            has_template_for_tools: with_tools.is_some(),
            marks_answers: all.iter().all(|source| with_marks(source) != *source),
            source: all.join("\n"),
            default_source: source.to_owned(),
        })
    }

    /// ChatML. It writes no special tokens, so it works with every vocabulary.
    pub fn chatml() -> Self {
        ChatTemplate::new(CHATML, None, &BTreeMap::new()).expect("the template is valid")
    }

    /// The sources of the template.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The source of the template for conversations without tools.
    pub fn default_source(&self) -> &str {
        &self.default_source
    }

    /// Special tokens by name, such as `bos_token`.
    pub fn tokens(&self) -> &BTreeMap<String, String> {
        &self.tokens
    }

    /// Whether the template marks what the assistant writes, with `{% generation %}`.
    pub(super) fn marks_answers(&self) -> bool {
        self.marks_answers
    }

    /// Renders messages. `asks` adds the beginning of an answer. Marked answers are between
    /// [`BEGIN`] and [`END`].
    ///
    /// # Errors
    /// The template fails. The error is the end of a sentence.
    pub(crate) fn render(
        &self,
        messages: &[Value],
        tools: &[Value],
        asks: bool,
    ) -> Result<String, String> {
        let is_for_tools = self.has_template_for_tools && !tools.is_empty();
        let name = if is_for_tools { WITH_TOOLS } else { DEFAULT };
        let template = self.environment.get_template(name);
        let template = template.map_err(|error| describe(&error))?;
        let tools = if tools.is_empty() {
            Value::from(())
        } else {
            Value::from(tools.to_vec())
        };
        let tokens = self.tokens.iter();
        let tokens = tokens.map(|(name, text)| (name.clone(), Value::from(text.as_str())));
        let context = tokens.chain([
            ("messages".to_owned(), Value::from(messages.to_vec())),
            ("tools".to_owned(), tools),
            ("documents".to_owned(), Value::from(())),
            ("add_generation_prompt".to_owned(), Value::from(asks)),
        ]);
        let compiled = get_compiled_template(&template);
        let checked = with_checks(&compiled.instructions);
        let (mut rendered, context) = (String::new(), Value::from_pairs(context));
        let outcome = eval(
            &self.environment,
            &checked,
            context,
            &compiled.blocks,
            &mut make_string_output(&mut rendered),
            compiled.initial_auto_escape.clone(),
        );
        outcome.map_err(|error| describe(&error))?;
        Ok(rendered)
    }
}

/// The template with its `generation` blocks as calls, which MiniJinja knows. They have the same
/// scopes and the same rules for white space.
fn with_marks(source: &str) -> String {
    let mut marked = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        marked.push_str(before);
        // The `%` of `{%}` does not also end the tag.
        let Some(end) = tag[2..].find("%}") else {
            rest = tag;
            break;
        };
        let (tag, after) = tag.split_at(end + 4);
        let inside = &tag[2..tag.len() - 2];
        let name = inside.trim_matches(|c: char| c.is_whitespace() || "+-".contains(c));
        match name {
            "generation" => marked.push_str(&tag.replace(name, "call mark_answer()")),
            "endgeneration" => marked.push_str(&tag.replace(name, "endcall")),
            _ => marked.push_str(tag),
        }
        rest = after;
    }
    marked.push_str(rest);
    marked
}

fn mark_answer(state: &mut State, arguments: Kwargs) -> Result<Value, Error> {
    let body: Value = arguments.get("caller")?;
    let text = body.call(state, &[])?;
    Ok(Value::from(format!("{BEGIN}{text}{END}")))
}

/// As in Python, nothing iterates over `none`.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

fn raise_exception(reason: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, reason))
}

/// A fixed date, so that a run that is resumed on another day has the same tokens.
fn strftime_now(format: String) -> Result<String, Error> {
    let text = strtime::format(&format, date(2024, 7, 26).at(0, 0, 0, 0));
    text.map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
}

fn to_json(state: &State, value: Value, arguments: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = arguments.get("indent")?;
    // Python's other options, such as ensure_ascii, are those that templates use anyway.
    charge_visits(state, &value)?;
    let text = to_python_json(&value, indent, affordable_bytes(state));
    let text = text.ok_or_else(|| {
        let reason = "the value cannot be written as JSON, or writing it takes too long";
        Error::new(ErrorKind::InvalidOperation, reason)
    })?;
    Ok(Value::from(text))
}

/// An error of a template in words, with the line if there is one.
fn describe(error: &Error) -> String {
    let detail = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    let detail = match error.kind() {
        ErrorKind::OutOfFuel => "rendering takes too long".to_owned(),
        _ => detail,
    };
    let detail = detail.trim_end_matches('.');
    match error.line() {
        Some(line) => format!("{detail} (line {line} of the template)"),
        None => detail.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(source: &str) -> ChatTemplate {
        let tokens = BTreeMap::from([("bos_token".to_owned(), "<s>".to_owned())]);
        ChatTemplate::new(source, None, &tokens).expect("it is valid")
    }

    fn messages() -> Vec<Value> {
        let cell = r#"[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes"}]"#;
        serde_json::from_str(cell).expect("it is JSON")
    }

    #[test]
    fn templates_use_what_transformers_offers() {
        for (source, expected) in [
            ("{{ bos_token }}{{ messages[0]['content'] }}", "<s>Hi"),
            (
                "{{ {'b': [1, 2.5, none, true], 'a': \"<é'>\"} | tojson }}",
                "{\"b\": [1, 2.5, null, true], \"a\": \"<é'>\"}",
            ),
            (
                "{{ [{'a': 1}, []] | tojson(indent=2) }}",
                "[\n  {\n    \"a\": 1\n  },\n  []\n]",
            ),
            ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
            (
                "{% for m in messages %}\n    {% if loop.last %}{% break %}{% endif %}\n{{ m.role }}\n{% endfor %}",
                "user\n",
            ),
            (
                "{% for m in messages[::-1] %}{{ m.content.upper() }}{% endfor %}",
                "YESHI",
            ),
            (
                "{% if tools is none and documents is none %}{{ true }}{{ none }}{% endif %}",
                "TrueNone",
            ),
            (
                "{% set n = namespace(x=0) %}{% for m in messages %}{% set n.x = n.x + 1 %}{% endfor %}{{ n.x }}",
                "2",
            ),
            (
                "{{ messages[0].get('x', 'none') }}{% for k, v in messages[0].items() %}{{ k }}{% endfor %}",
                "nonerolecontent",
            ),
            (
                "{{ none is iterable }}{{ messages is iterable }}{{ 5 is iterable }}",
                "FalseTrueFalse",
            ),
            (
                "{{ ' a '.strip() + 'b=c'.split('=')[1] }}{{ 'x' if 'Hi'.startswith('H') }}",
                "acx",
            ),
        ] {
            let found = template(source).render(&messages(), &[], false);
            assert_eq!(found.as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn a_template_that_fails_gives_its_reason() {
        let render = |source: &str| template(source).render(&messages(), &[], false).err();
        let raised = render("{{ raise_exception('Roles must alternate.') }}");
        assert!(raised.is_some_and(|text| text.starts_with("Roles must alternate")));
        let slow = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        assert_eq!(
            render(slow).map(|text| text.contains("too long")),
            Some(true)
        );
        let doubled = "{% set n = namespace(x=['a']) %}{% for i in range(30) %}{% set n.x = n.x + n.x %}{% endfor %}";
        for end in [
            "{{ ''.join(n.x) }}",
            "{{ 'b'.startswith(n.x) }}",
            "{{ n.x | tojson }}",
            "{{ [n.x].count(1) }}",
            "{{ [n.x] | tojson(indent=4) }}",
            "{{ ('a' * 100000).strip('b' * 100000 + 'a') }}",
        ] {
            let reason = render(&format!("{doubled}{end}"));
            assert_eq!(
                reason.as_ref().map(|text| text.contains("too long")),
                Some(true),
                "{end}: {reason:?}"
            );
        }
        let nested = "{% set n = namespace(x=[]) %}{% for i in range(300) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x | tojson }}";
        let reason = render(nested);
        assert_eq!(reason.map(|text| text.contains("too deeply")), Some(true));
        assert!(render("{{ messages[0].x.y }}").is_some());
        assert!(ChatTemplate::new("{% if %}", None, &BTreeMap::new()).is_err());
    }

    /// Such templates once took all memory, never ended, or ended the program.
    #[test]
    fn lists_can_be_neither_large_nor_deep() {
        let with_list = |list: &str| format!("{{% set n = namespace(x={list}) %}}");
        let repeated = |times: usize, set: &str| {
            format!("{{% for i in range({times}) %}}{{% set n.x = {set} %}}{{% endfor %}}")
        };
        let doubled = format!("{}{}", with_list("['a']"), repeated(30, "n.x + n.x"));
        let nested = format!("{}{}", with_list("[0]"), repeated(40, "[n.x, n.x]"));
        let product =
            "{% set a = [0] %}{% set b = 9999 %}{% set c = [a * b] %}{% set d = [c * b] %}";
        for (source, expected) in [
            (format!("{doubled}{{{{ n.x }}}}"), "too long"),
            (format!("{doubled}{{{{ n.x ~ '' }}}}"), "too long"),
            (format!("{doubled}{{{{ n.x | upper }}}}"), "too long"),
            (format!("{doubled}{}", repeated(9, "n.x + n.x")), "too long"),
            (format!("{nested}{{{{ n.x == [n.x] }}}}"), "too long"),
            (format!("{nested}{{{{ {{n.x: 1}}[n.x] }}}}"), "too long"),
            (format!("{product}{{{{ d * b == d * b }}}}"), "too long"),
            (
                format!("{}{}", with_list("[]"), repeated(9999, "[n.x]")),
                "too deeply",
            ),
            (
                format!("{}{}", with_list("0"), repeated(1, "n")),
                "cannot hold",
            ),
            (
                format!("{}{}", with_list("0"), repeated(1, "[loop]")),
                "cannot hold",
            ),
            (
                format!(
                    "{}{}",
                    with_list("0"),
                    "{% set m = namespace(x=[n]) %}{% set n.x = m %}"
                ),
                "cannot hold",
            ),
            (
                "{% set a = (1, 2) %}{{ (a * 9999999999) | length }}".to_owned(),
                "too long",
            ),
            (
                "{{ [1, 2].count(*([0] * 9999999)) }}".to_owned(),
                "too long",
            ),
        ] {
            let reason = template(&source).render(&messages(), &[], false).err();
            assert!(
                reason.as_ref().is_some_and(|text| text.contains(expected)),
                "{source}: {reason:?}"
            );
        }
        // The library would compute it while it compiles the template.
        let constant = "{{ [[[0] * 9999] * 9999] * 9999 == [[[0] * 9999] * 9999] * 9999 }}";
        let reason = template(constant).render(&messages(), &[], false).err();
        assert!(reason.is_some_and(|text| text.contains("too long")));
    }

    /// Ebb's own checks once refused them.
    #[test]
    fn products_arguments_from_lists_and_nested_namespaces_are_valid() {
        for (source, expected) in [
            ("{% set depth = 1 %}{{ (depth + 1) * 2 }}", "4"),
            ("{{ 2 * (1 + 2) }}{{ -2 * -(3) }}{{ 2*3*4 }}", "6624"),
            (
                "{{ [7] * 3 }}{{ ('a' ~ 'b') * 2 }}{{ 3 * messages[0]['role'] }}",
                "[7, 7, 7]ababuseruseruser",
            ),
            (
                "{{ messages | length * 2 }}{{ 2 ** 3 * 2 }}{{ 7 // 2 * 2 }}",
                "4166",
            ),
            (
                "{{ '{} {}'.format(*['a', 'b']) if false }}a * b {# 2 * 3 #}{% raw %}{{ 1 * 2 }}{% endraw %}",
                "a * b {{ 1 * 2 }}",
            ),
            (
                "{% macro join(a, b, c='') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ join(*['x', 'y'], c='z') }}{{ join('x', *['y']) }}",
                "xyzxy",
            ),
            (
                "{{ dict(a=1, **{'b': 2 * 3}) | tojson }}{{ range(*[1, 3]) | list }}",
                "{\"a\": 1, \"b\": 6}[1, 2]",
            ),
            (
                "{% set n = namespace(inner=namespace(x=1)) %}{% set n.inner.x = 2 %}{{ n.inner.x }}",
                "2",
            ),
        ] {
            let found = template(source).render(&messages(), &[], false);
            assert_eq!(found.as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn checks_of_operands_leave_the_text_as_it_is() {
        for (source, expected) in [
            (
                "{% for m in messages if m.role != 'user' %}{{ loop.index }}{{ m.content }}{% endfor %}",
                "1Yes",
            ),
            (
                "{% if 1 < messages | length <= 2 %}{{ 2 * 3 }}{% else %}no{% endif %}",
                "6",
            ),
            (
                "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join }}",
                "Hi",
            ),
            (
                "{{ ([1] + [2] + [3])[1:] }}{{ [1, 2] == [1] + [2] }}{{ 2 in [1] + [2] }}",
                "[2, 3]TrueTrue",
            ),
            (
                "{% macro twice(text, end='') %}{{ text }}{{ text ~ end }}{% endmacro %}{{ twice('a', end='!') }}",
                "aa!",
            ),
            (
                "{% set n = namespace({'a': 1}) %}{% set n.b = messages[1:] %}{{ n.a }}{{ n.b[0].content }}{{ n.c is defined }}",
                "1YesFalse",
            ),
            (
                "{{ 'yes' if messages[0] == messages[-2] and 'role' in messages[0] else 'no' }}",
                "yes",
            ),
            (
                "{% for a in [[1, [2]]] recursive %}{% if a is iterable %}{{ loop(a) }}{% else %}{{ a }}{% endif %}{% endfor %}",
                "12",
            ),
        ] {
            let found = template(source).render(&messages(), &[], false);
            assert_eq!(found.as_deref(), Ok(expected), "{source}");
        }
        // A conversation of many messages, collected one by one.
        let source = "{% set n = namespace(x=[]) %}{% for i in range(500) %}{% set n.x = n.x + [messages[0]] %}{% endfor %}{{ n.x | length }}";
        let found = template(source).render(&messages(), &[], false);
        assert_eq!(found.as_deref(), Ok("500"));
    }

    #[test]
    fn answers_are_marked_by_generation_blocks() {
        let source = "{% for m in messages %}\n{{ m.role }}:\n{%- if m.role == 'assistant' %}\n    {%- generation -%}\n {{ m.content }}\n    {%- endgeneration %}\n{% else %}{{ m.content }}\n{% endif %}\n{% endfor %}";
        let template = template(source);
        assert!(template.marks_answers());
        let found = template
            .render(&messages(), &[], false)
            .expect("it renders");
        assert_eq!(found, format!("user:Hi\nassistant:{BEGIN}Yes{END}"));
    }
}
