//! Checks the operands of a chat template: how much a template pays for lists and maps that it
//! compares, prints or passes on, and how deep it may nest them. MiniJinja counts only the first
//! level of a list. A template could otherwise double a list forty times and then compare it, or
//! nest a list in itself until the program has no stack left.
//!
//! The checks are calls of functions that are inserted before the instructions of the template.

use super::template_costs::{UNIT_BYTES, charge_inside};
use minijinja::machinery::{Instruction, Instructions, Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Enumerator, Object, ObjectRepr, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Functions that only inserted instructions call: a template cannot write a name with a space.
const CHECK: &str = "check operands";
const CHECK_LISTS: &str = "check lists";
const CHECK_PRODUCT: &str = "check product";
const SET: &str = "set attribute";
/// The variable in products.
const ONE: &str = "_one_";

/// Filters whose work does not depend on what is inside of their operand.
const SHALLOW_FILTERS: [&str; 7] = ["length", "count", "default", "d", "first", "last", "tojson"];
/// Tests whose work does not depend on what is inside of their operand.
const SHALLOW_TESTS: [&str; 12] = [
    "defined",
    "undefined",
    "none",
    "string",
    "mapping",
    "iterable",
    "sequence",
    "number",
    "integer",
    "boolean",
    "true",
    "false",
];

/// Adds the functions that inserted instructions call, and a `namespace` that holds no other.
pub(super) fn add_functions(environment: &mut Environment<'static>) {
    environment.add_function(CHECK, check);
    environment.add_function(CHECK_LISTS, check_lists);
    environment.add_function(CHECK_PRODUCT, check_product);
    environment.add_function(SET, set_attribute);
    environment.add_global(ONE, 1);
    environment.add_function("namespace", namespace);
    // It prints everything that the template knows.
    environment.remove_global("debug");
}

/// The template with another factor in each product: a variable that is one. MiniJinja computes
/// products of constants while it compiles a template, without a limit, and a repeated list may be
/// large. A product with a variable is computed, and paid for, when the template is rendered.
///
/// # Errors
/// The template is not valid.
pub(super) fn with_variable_products(source: &str, syntax: SyntaxConfig) -> Result<String, Error> {
    let (mut changed, mut copied) = (String::with_capacity(source.len()), 0);
    let mut begins_operand = true;
    for token in tokenize(source, false, syntax) {
        let (token, span) = token?;
        // Otherwise it passes the elements of a list as arguments.
        if matches!(token, Token::Mul) && !begins_operand {
            let end = span.end_offset as usize;
            changed.push_str(&source[copied..end]);
            changed.push_str(&format!(" {ONE} *"));
            copied = end;
        }
        begins_operand = matches!(token, Token::ParenOpen | Token::Comma);
    }
    changed.push_str(&source[copied..]);
    Ok(changed)
}

/// The instructions of a template with the checks.
pub(super) fn with_checks<'s>(original: &Instructions<'s>) -> Instructions<'s> {
    let all: Vec<&Instruction> = (0..).map_while(|at| original.get(at)).collect();
    let mut is_target = vec![false; all.len() + 1];
    for to in all.iter().filter_map(|one| target(one)) {
        is_target[to as usize] = true;
    }
    let (mut checks, mut places, mut place) = (Vec::new(), Vec::new(), 0);
    for (at, instruction) in all.iter().enumerate() {
        let before = at.checked_sub(1).filter(|_| !is_target[at]);
        let check = check_before(instruction, before.map(|at| all[at]));
        places.push(place);
        place += check.instructions() + 1;
        checks.push(check);
    }
    places.push(place);
    let mut checked = Instructions::new(original.name(), original.source());
    for (at, (instruction, check)) in (0..).zip(all.iter().zip(checks)) {
        let line = original.get_line(at).and_then(|at| u16::try_from(at).ok());
        let mut add = |one: Instruction<'s>| match line {
            Some(line) => checked.add_with_line(one, line),
            None => checked.add(one),
        };
        check.insert(&mut add);
        add(moved(instruction, &places));
    }
    checked
}

/// What is inserted before an instruction.
#[derive(Clone, Copy)]
enum Check<'s> {
    Nothing,
    /// A call with this many operands.
    Operands(&'static str, usize),
    /// A call that sets the attribute of this name.
    Attribute(&'s str),
}

impl<'s> Check<'s> {
    /// The number of instructions.
    fn instructions(self) -> u32 {
        match self {
            Check::Nothing => 0,
            Check::Operands(_, 1) => 1,
            Check::Operands(..) => 4,
            Check::Attribute(_) => 2,
        }
    }

    fn insert(self, add: &mut impl FnMut(Instruction<'s>) -> u32) {
        match self {
            Check::Nothing => {}
            Check::Operands(name, 1) => {
                add(Instruction::CallFunction(name, Some(1)));
            }
            Check::Operands(name, operands) => {
                // All of them in a list, which is taken apart again.
                add(Instruction::BuildList(Some(operands)));
                add(Instruction::CallFunction(name, Some(1)));
                add(Instruction::UnpackLists(1));
                add(Instruction::DiscardTop);
            }
            Check::Attribute(name) => {
                add(Instruction::LoadConst(Value::from(name)));
                add(Instruction::CallFunction(SET, Some(3)));
            }
        }
    }
}

/// The instruction to which another one jumps.
fn target(instruction: &Instruction) -> Option<u32> {
    match instruction {
        Instruction::Iterate(to)
        | Instruction::Jump(to)
        | Instruction::JumpIfFalse(to)
        | Instruction::JumpIfFalseOrPop(to)
        | Instruction::JumpIfTrueOrPop(to)
        | Instruction::BuildMacro(_, to, _) => Some(*to),
        _ => None,
    }
}

/// The instruction at its new place. One that sets an attribute has been replaced.
fn moved<'s>(instruction: &Instruction<'s>, places: &[u32]) -> Instruction<'s> {
    let mut moved = instruction.clone();
    match &mut moved {
        Instruction::Iterate(to)
        | Instruction::Jump(to)
        | Instruction::JumpIfFalse(to)
        | Instruction::JumpIfFalseOrPop(to)
        | Instruction::JumpIfTrueOrPop(to)
        | Instruction::BuildMacro(_, to, _) => *to = places[*to as usize],
        // Its value, the object and the name were popped by the call before it.
        Instruction::SetAttr(_) => moved = Instruction::DiscardTop,
        _ => {}
    }
    moved
}

/// The check of an instruction. `before` is the one that always runs before it.
fn check_before<'s>(instruction: &Instruction<'s>, before: Option<&Instruction>) -> Check<'s> {
    if let Instruction::SetAttr(name) = instruction {
        return Check::Attribute(name);
    }
    let is_constant =
        matches!(before, Some(Instruction::LoadConst(value)) if value.as_object().is_none());
    let (operands, is_harmless_with_constant) = operands(instruction);
    if operands == 0 || is_constant && is_harmless_with_constant {
        return Check::Nothing;
    }
    let check = match instruction {
        // Two lists are added without a look inside.
        Instruction::Add => CHECK_LISTS,
        Instruction::Mul => CHECK_PRODUCT,
        _ => CHECK,
    };
    Check::Operands(check, operands)
}

/// The number of operands to check, and whether the instruction is harmless if the last one is a
/// text, a number or nothing.
fn operands(instruction: &Instruction) -> (usize, bool) {
    let is_one_of = |name: &str, known: &[&str]| {
        let letters = || name.chars().filter(|letter| !letter.is_whitespace());
        known.iter().any(|known| letters().eq(known.chars()))
    };
    let arguments = match instruction {
        Instruction::Emit | Instruction::GetItem => return (1, true),
        Instruction::Add
        | Instruction::Eq
        | Instruction::Ne
        | Instruction::Gt
        | Instruction::Gte
        | Instruction::Lt
        | Instruction::Lte => return (2, true),
        Instruction::Mul
        | Instruction::StringConcat
        | Instruction::In
        | Instruction::CompareAndPreserve(_) => return (2, false),
        Instruction::Slice => return (4, false),
        Instruction::BuildMap(pairs) | Instruction::BuildKwargs(pairs) => {
            return (2 * pairs, false);
        }
        // Without a number, these are the elements of a list that a loop selects.
        Instruction::BuildList(number) | Instruction::BuildTuple(number) => {
            return (number.unwrap_or(0), false);
        }
        // All arguments of a call that passes the elements of a list.
        Instruction::UnpackLists(lists) => return (*lists, false),
        Instruction::ApplyFilter(name, ..) if is_one_of(name, &SHALLOW_FILTERS) => {
            return (0, false);
        }
        Instruction::PerformTest(name, ..) if is_one_of(name, &SHALLOW_TESTS) => {
            return (0, false);
        }
        Instruction::ApplyFilter(_, arguments, _)
        | Instruction::PerformTest(_, arguments, _)
        | Instruction::CallFunction(_, arguments)
        | Instruction::CallMethod(_, arguments)
        | Instruction::CallObject(arguments) => arguments,
        _ => return (0, false),
    };
    (arguments.map_or(0, usize::from), false)
}

/// Charges for everything inside of an operand, or of a list of operands.
fn check(state: &State, operand: ValueOrKwargs) -> Result<Value, Error> {
    let operand = operand.into_value();
    if operand.as_object().is_some() {
        charge_inside(state, &operand, |_| true)?;
    }
    without_lazy_lists(operand)
}

/// Charges for the elements of the operands in a list.
fn check_lists(state: &State, operands: ValueOrKwargs) -> Result<Value, Error> {
    let operands = operands.into_value();
    for operand in operands.try_iter()? {
        if operand.as_str().is_none() {
            state.consume_fuel(operand.len().unwrap_or(0) as u64)?;
        }
    }
    without_lazy_lists(operands)
}

/// Charges for two factors like [`check`], and for the elements or the characters of their product:
/// a tuple is repeated at once.
fn check_product(state: &State, factors: ValueOrKwargs) -> Result<Value, Error> {
    let factors = factors.into_value();
    charge_inside(state, &factors, |_| true)?;
    let all: Vec<Value> = factors.try_iter()?.collect();
    if let [one, other] = &all[..] {
        for (repeated, times) in [(one, other), (other, one)] {
            let units = match (repeated.as_str(), times.as_usize()) {
                (Some(text), Some(times)) => text.len().saturating_mul(times) / UNIT_BYTES,
                (None, Some(times)) => repeated.len().unwrap_or(0).saturating_mul(times),
                (_, None) => 0,
            };
            state.consume_fuel(units as u64)?;
        }
    }
    without_lazy_lists(factors)
}

/// Makes lists of what is not a list yet, such as a part of a list or a sum of two: a part of a
/// part of a part would otherwise be nested too. The same for the elements of a list.
fn without_lazy_lists(value: Value) -> Result<Value, Error> {
    let is_lazy = |value: &Value| value.kind() == ValueKind::Iterable;
    if is_lazy(&value) {
        return as_list(&value);
    }
    let is_list = value.kind() == ValueKind::Seq && !value.is_tuple();
    if !is_list || !value.try_iter()?.any(|element| is_lazy(&element)) {
        return Ok(value);
    }
    let elements = value.try_iter()?.map(|element| {
        if is_lazy(&element) {
            as_list(&element)
        } else {
            Ok(element)
        }
    });
    Ok(Value::from(
        elements.collect::<Result<Vec<Value>, Error>>()?,
    ))
}

fn as_list(value: &Value) -> Result<Value, Error> {
    Ok(Value::from(value.try_iter()?.collect::<Vec<Value>>()))
}

/// The object that `namespace` returns. Nothing in it leads to itself, or to a loop or a macro, so
/// that values have no cycles.
#[derive(Debug, Default)]
struct Namespace(Mutex<BTreeMap<String, Value>>);

impl Object for Namespace {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        values.get(key.as_str()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Enumerator::Values(values.keys().map(|key| Value::from(key.as_str())).collect())
    }
}

impl Namespace {
    fn set(&self, state: &State, name: &str, value: Value) -> Result<(), Error> {
        charge_inside(state, &value, |value| self.may_hold(value))?;
        let value = without_lazy_lists(value)?;
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        values.insert(name.to_owned(), value);
        Ok(())
    }

    /// Whether a value is a list, a map or another namespace. Loops and macros lead to values that
    /// change.
    fn may_hold(&self, value: &Value) -> bool {
        // Every loop has this attribute.
        let is_loop = || {
            let index = value.get_attr("revindex0");
            value.kind() == ValueKind::Map && index.is_ok_and(|index| !index.is_undefined())
        };
        match value.downcast_object_ref::<Namespace>() {
            Some(namespace) => !std::ptr::eq(self, namespace),
            None => value.kind() != ValueKind::Plain && !is_loop(),
        }
    }
}

/// The function `namespace`, with the values of a map or of keyword arguments.
fn namespace(state: &State, values: Option<ValueOrKwargs>) -> Result<Value, Error> {
    let namespace = Namespace::default();
    if let Some(values) = values.map(ValueOrKwargs::into_value) {
        let pairs = values.as_object().and_then(|map| map.try_iter_pairs());
        let reason = "namespace() takes a map or keyword arguments";
        let pairs = pairs.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, reason))?;
        for (name, value) in pairs {
            if let Some(name) = name.as_str() {
                namespace.set(state, name, value)?;
            }
        }
    }
    Ok(Value::from_object(namespace))
}

/// Sets an attribute of a namespace.
fn set_attribute(state: &State, value: Value, to: Value, name: &str) -> Result<(), Error> {
    let Some(namespace) = to.downcast_object_ref::<Namespace>() else {
        let reason = format!("can only assign to namespaces, not {}", to.kind());
        return Err(Error::new(ErrorKind::InvalidOperation, reason));
    };
    namespace.set(state, name, value)
}
