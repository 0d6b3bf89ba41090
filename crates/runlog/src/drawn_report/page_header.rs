//! The head of the report: what was trained, on which data, and the results.

use super::canvas::{Align, DrawResult, EDGE, Page, Type, WIDTH, colour};
use crate::amounts::{MISSING, format_bytes, format_count, format_duration, format_percent};
use crate::{Run, Started, TaskChoice};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use plotters::prelude::DrawingBackend;

const TITLE: Type = Type::strong(22.0, colour::TEXT);
const BODY: Type = Type::plain(13.0, colour::TEXT_2);
const FIGURE: Type = Type::strong(22.0, colour::TEXT);
const CAPTION: Type = Type::plain(12.0, colour::TEXT_3);
/// Top of the row of figures.
const ROW: f64 = 104.0;
/// Height of the row of figures.
const ROW_HEIGHT: f64 = 64.0;

/// Draws the head. `id` is the title of a run without a name.
pub(super) fn draw<B: DrawingBackend>(run: &Run, id: &str, page: &Page<B>) -> DrawResult {
    let started = run.started.clone().unwrap_or_default();
    let right = WIDTH - EDGE;
    let name = if started.name.is_empty() {
        id
    } else {
        &started.name
    };
    let date = date(&started);
    let available = right - EDGE - BODY.width(&date) - 24.0;
    page.text(
        (EDGE, 48.0),
        &TITLE.fit(name, available),
        TITLE,
        Align::Left,
    )?;
    page.text((right, 48.0), &date, BODY, Align::Right)?;
    page.text(
        (EDGE, 70.0),
        &BODY.fit(&describe(&started), right - EDGE),
        BODY,
        Align::Left,
    )?;
    let gradients = run.describe_gradients().unwrap_or_default();
    let available = right - EDGE - BODY.width(&gradients) - 24.0;
    page.text(
        (EDGE, 89.0),
        &BODY.fit(&run.status_line.message, available),
        BODY,
        Align::Left,
    )?;
    page.text((right, 89.0), &gradients, BODY, Align::Right)?;

    let figures = figures(run, &started);
    let column = (right - EDGE) / figures.len() as f64;
    for y in [ROW, ROW + ROW_HEIGHT] {
        page.line(&[(EDGE, y), (right, y)], 0.75, colour::LINE)?;
    }
    for (i, figure) in figures.iter().enumerate() {
        let left = EDGE + column * i as f64;
        if i > 0 {
            page.line(&[(left, ROW), (left, ROW + ROW_HEIGHT)], 0.75, colour::LINE)?;
        }
        let x = left + if i > 0 { 16.0 } else { 0.0 };
        page.text((x, ROW + 32.0), &figure.value, FIGURE, Align::Left)?;
        page.text(
            (x + FIGURE.width(&figure.value) + 6.0, ROW + 32.0),
            &figure.unit,
            BODY,
            Align::Left,
        )?;
        page.text((x, ROW + 51.0), &figure.caption, CAPTION, Align::Left)?;
    }
    Ok(())
}

/// The run in one line: model, device, data.
fn describe(started: &Started) -> String {
    if started.model.is_empty() {
        return String::new();
    }
    let parts = [
        started.model.clone(),
        format!("{} parameters", format_count(started.parameters)),
        started.device.clone(),
        started.describe_step(),
        format!(
            "{} train, {} held out",
            format_count(started.train_samples),
            format_count(started.held_out_samples)
        ),
        match started.known_task() {
            Some(
                TaskChoice::TextClassification
                | TaskChoice::LanguageModel
                | TaskChoice::TokenCompression,
            ) => {
                format!("{} tokens", started.input_size)
            }
            Some(TaskChoice::ImageClassification) | None => {
                format!("{} pixels", started.input_size)
            }
        },
        started.optimizer.clone(),
        format!("seed {}", started.seed),
    ];
    parts.join("  ·  ")
}

fn date(started: &Started) -> String {
    let instant = Timestamp::from_millisecond(started.unix_ms as i64).ok();
    match instant.filter(|_| started.unix_ms > 0) {
        Some(instant) => instant
            .to_zoned(TimeZone::system())
            .strftime("%-d %B %Y, %H:%M")
            .to_string(),
        None => String::new(),
    }
}

/// A number with its unit and caption.
struct Figure {
    value: String,
    unit: String,
    caption: String,
}

impl Figure {
    fn new(value: String, caption: &str) -> Figure {
        Figure {
            value,
            unit: String::new(),
            caption: caption.to_owned(),
        }
    }

    /// Splits a text such as "6.1 GB" at its last space.
    fn with_unit(text: String, caption: &str) -> Figure {
        let Some((value, unit)) = text.rsplit_once(' ') else {
            return Figure::new(text, caption);
        };
        Figure {
            value: value.to_owned(),
            unit: unit.to_owned(),
            caption: caption.to_owned(),
        }
    }
}

fn figures(run: &Run, started: &Started) -> [Figure; 6] {
    let figures = &run.figures;
    let best_loss = run.best_evaluation().map(|best| best.loss);
    let baseline = run.baseline().and_then(|baseline| baseline.accuracy);
    let best = match (figures.best_accuracy, best_loss) {
        (Some(accuracy), _) => {
            let caption = match baseline {
                Some(baseline) => format!("held out, baseline {}", format_percent(baseline)),
                None => "best held-out accuracy".to_owned(),
            };
            Figure::with_unit(format_percent(accuracy), &caption)
        }
        // The task has no accuracy.
        (None, Some(loss)) => Figure::new(format!("{loss:.3}"), "best held-out loss"),
        (None, None) => Figure::new(MISSING.into(), "held out, not yet evaluated"),
    };
    let loss = figures
        .smoothed_loss
        .map_or(MISSING.into(), |loss| format!("{loss:.3}"));
    let steps = Figure {
        unit: match started.steps {
            0 => String::new(),
            steps => format!("of {}", format_count(steps)),
        },
        ..Figure::new(format_count(figures.step), "steps")
    };
    let peak = run.highest_footprint().map_or(MISSING.into(), format_bytes);
    [
        best,
        Figure::new(loss, "smoothed loss"),
        steps,
        Figure::with_unit(format_duration(run.now_ms as f64 / 1000.0), "duration"),
        Figure::new(
            format_count(figures.changes.into()),
            "changes of the micro-batch",
        ),
        Figure::with_unit(peak, "highest footprint"),
    ]
}
