//! The head of the report: what was trained, on what, and the numbers that came out.

use super::page::{Align, Drawn, Page, Type, colour};
use super::{EDGE, WIDTH};
use crate::words::{MISSING, format_bytes, format_count, format_duration, format_percent};
use crate::{Run, Started};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use plotters::prelude::DrawingBackend;

const TITLE: Type = Type::strong(22.0, colour::TEXT);
const BODY: Type = Type::plain(13.0, colour::TEXT_2);
const FIGURE: Type = Type::strong(22.0, colour::TEXT);
const CAPTION: Type = Type::plain(12.0, colour::TEXT_3);
/// Top of the row of figures.
const ROW: f64 = 104.0;
/// Its height.
const HIGH: f64 = 64.0;

/// `id` is the title of a run that has not said its name yet.
pub(super) fn draw<B: DrawingBackend>(run: &Run, id: &str, page: &Page<B>) -> Drawn {
    let started = run.started.clone().unwrap_or_default();
    let right = WIDTH - EDGE;
    let name = if started.name.is_empty() {
        id
    } else {
        &started.name
    };
    let date = date(&started);
    let room = right - EDGE - BODY.width(&date) - 24.0;
    page.text((EDGE, 48.0), &fitted(name, TITLE, room), TITLE, Align::Left)?;
    page.text((right, 48.0), &date, BODY, Align::Right)?;
    page.text(
        (EDGE, 70.0),
        &fitted(&about(&started), BODY, right - EDGE),
        BODY,
        Align::Left,
    )?;
    page.text(
        (EDGE, 89.0),
        &fitted(&run.line.sentence, BODY, right - EDGE),
        BODY,
        Align::Left,
    )?;

    let figures = figures(run, &started);
    let wide = (right - EDGE) / figures.len() as f64;
    for y in [ROW, ROW + HIGH] {
        page.line(&[(EDGE, y), (right, y)], 0.75, colour::LINE)?;
    }
    for (i, (value, unit, caption)) in figures.iter().enumerate() {
        let left = EDGE + wide * i as f64;
        if i > 0 {
            page.line(&[(left, ROW), (left, ROW + HIGH)], 0.75, colour::LINE)?;
        }
        let x = left + if i > 0 { 16.0 } else { 0.0 };
        page.text((x, ROW + 32.0), value, FIGURE, Align::Left)?;
        page.text(
            (x + FIGURE.width(value) + 6.0, ROW + 32.0),
            unit,
            BODY,
            Align::Left,
        )?;
        page.text((x, ROW + 51.0), caption, CAPTION, Align::Left)?;
    }
    Ok(())
}

fn about(started: &Started) -> String {
    if started.model.is_empty() {
        return String::new();
    }
    let parts = [
        started.model.clone(),
        format!("{} parameters", format_count(started.parameters)),
        started.device.clone(),
        format!(
            "{} samples a step",
            format_count(started.effective_batch.into())
        ),
        format!(
            "{} train, {} held out",
            format_count(started.train_samples),
            format_count(started.held_out_samples)
        ),
        match started.task.as_str() {
            "text-classification" | "language-model" | "token-compression" => {
                format!("{} tokens", started.image_size)
            }
            _ => format!("{} pixels", started.image_size),
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

/// Value, unit, caption.
fn figures(run: &Run, started: &Started) -> [(String, String, &'static str); 6] {
    let figures = &run.figures;
    let split = |text: String| match text.rsplit_once(' ') {
        Some((value, unit)) => (value.to_owned(), unit.to_owned()),
        None => (text, String::new()),
    };
    let best = run.best_evaluation().map(|best| best.loss);
    let (best, caption) = match (figures.best_accuracy, best) {
        (Some(accuracy), _) => (split(format_percent(accuracy)), "best held-out accuracy"),
        // A task that has none.
        (None, Some(loss)) => ((format!("{loss:.3}"), String::new()), "best held-out loss"),
        (None, None) => (
            (MISSING.into(), String::new()),
            "held out, not yet evaluated",
        ),
    };
    let loss = figures
        .smoothed_loss
        .map_or(MISSING.into(), |loss| format!("{loss:.3}"));
    let planned = match started.steps {
        0 => String::new(),
        steps => format!("of {}", format_count(steps)),
    };
    let duration = split(format_duration(run.now_ms as f64 / 1000.0));
    let peak = run
        .highest_footprint()
        .map_or((MISSING.into(), String::new()), |peak| {
            split(format_bytes(peak))
        });
    [
        (best.0, best.1, caption),
        (loss, String::new(), "smoothed loss"),
        (format_count(figures.step), planned, "steps"),
        (duration.0, duration.1, "duration"),
        (
            format_count(figures.changes.into()),
            String::new(),
            "changes of the micro-batch",
        ),
        (peak.0, peak.1, "highest footprint"),
    ]
}

/// The text, cut with an ellipsis where it is wider than its room.
pub(super) fn fitted(text: &str, kind: Type, room: f64) -> String {
    if kind.width(text) <= room {
        return text.to_owned();
    }
    let mut cut = text.to_owned();
    while cut.pop().is_some() {
        let short = format!("{}…", cut.trim_end());
        if kind.width(&short) <= room {
            return short;
        }
    }
    String::new()
}
