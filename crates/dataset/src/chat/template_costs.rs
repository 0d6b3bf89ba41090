//! What a chat template pays for methods and filters whose work MiniJinja does not count: those
//! that visit every element of a list, and those that compare characters with each other.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

/// Deepest nesting of a value that a method or a filter visits.
const MAX_DEPTH: usize = 100;
/// Bytes that cost a unit of fuel, as MiniJinja charges them.
pub(super) const UNIT_BYTES: usize = 64;
/// Fuel for a visit of a value. With it, a rendering that only visits values takes about a second.
const UNITS_PER_VALUE: u64 = 2;
/// Texts and numbers that a quick check visits for a unit.
const SCALARS_PER_UNIT: u64 = 4;

type Items = Box<dyn Iterator<Item = Value>>;

/// Charges two units for each value inside `value`, and one for each 64 bytes of text. Parts that
/// occur several times count each time, because they are visited each time.
///
/// # Errors
/// The fuel is spent, or the value is nested too deeply.
pub(super) fn charge_visits(state: &State, value: &Value) -> Result<(), Error> {
    visit(value, |item| {
        let bytes = item.as_str().map_or(0, str::len);
        state.consume_fuel(UNITS_PER_VALUE + (bytes / UNIT_BYTES) as u64)
    })
}

/// Charges like [`charge_visits`], but less for texts and numbers: for a check that visits every
/// value once, quickly. `is_allowed` says whether a value may be there.
///
/// # Errors
/// The fuel is spent, the value is nested too deeply, or a value is not allowed.
pub(super) fn charge_inside(
    state: &State,
    value: &Value,
    is_allowed: impl Fn(&Value) -> bool,
) -> Result<(), Error> {
    let mut scalars = 0;
    visit(value, |item| {
        if item.as_object().is_some() {
            if !is_allowed(item) {
                let reason = "a namespace cannot hold itself, a loop or a macro";
                return Err(Error::new(ErrorKind::InvalidOperation, reason));
            }
            return state.consume_fuel(UNITS_PER_VALUE);
        }
        let bytes = item.as_str().map_or(0, str::len);
        scalars += 1;
        let units = (bytes / UNIT_BYTES) as u64 + u64::from(scalars % SCALARS_PER_UNIT == 0);
        state.consume_fuel(units)
    })
}

/// Visits a value and everything inside of it.
fn visit(value: &Value, mut charge: impl FnMut(&Value) -> Result<(), Error>) -> Result<(), Error> {
    let mut open: Vec<Items> = vec![Box::new(std::iter::once(value.clone()))];
    while let Some(items) = open.last_mut() {
        let Some(item) = items.next() else {
            open.pop();
            continue;
        };
        charge(&item)?;
        let Some(inside) = items_inside(&item) else {
            continue;
        };
        if open.len() > MAX_DEPTH {
            let reason = "a value is nested too deeply";
            return Err(Error::new(ErrorKind::InvalidOperation, reason));
        }
        open.push(inside);
    }
    Ok(())
}

/// The elements of a list, or the keys and values of a map.
fn items_inside(value: &Value) -> Option<Items> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => Some(Box::new(value.try_iter().ok()?)),
        ValueKind::Map => {
            let pairs = value.as_object()?.try_iter_pairs()?;
            Some(Box::new(pairs.flat_map(|(key, value)| [key, value])))
        }
        _ => None,
    }
}

/// Most bytes that the template can still pay for.
pub(super) fn affordable_bytes(state: &State) -> usize {
    let units = state.fuel_levels().map_or(0, |(_, remaining)| remaining);
    usize::try_from(units)
        .unwrap_or(usize::MAX)
        .saturating_mul(UNIT_BYTES)
}

/// Calls a method of Python, after the template has paid for it.
pub(super) fn call_method(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    for argument in arguments {
        charge_visits(state, argument)?;
    }
    if value.kind() == ValueKind::Seq {
        charge_visits(state, value)?;
    }
    // Each character is looked for in the argument.
    let characters = arguments.first().and_then(Value::as_str);
    if let (Some(text), Some(characters), "strip" | "lstrip" | "rstrip") =
        (value.as_str(), characters, method)
    {
        let comparisons = text.len().saturating_mul(characters.len());
        state.consume_fuel((comparisons / UNIT_BYTES) as u64)?;
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
}
