//! The status line of a running training. The most important values come first; values for which
//! the terminal is too narrow are left out.

use indicatif::ProgressBar;
use pressure::Level;
use runlog::{Figures, MISSING, Started, format_bytes, format_duration, format_speed};

/// Width of the bar in front of the status line, in characters.
pub const BAR_COLUMNS: usize = 16;
/// Assumed width of a terminal whose width is unknown, in characters.
const USUAL_COLUMNS: usize = 80;

/// Width that remains for the status line beside the bar and its numbers, in characters.
pub fn columns_beside(bar: &ProgressBar) -> usize {
    let size = console::Term::stderr().size_checked();
    let columns = size.map_or(USUAL_COLUMNS, |(_, columns)| usize::from(columns));
    let numbers = format!("{}/{}", bar.position(), bar.length().unwrap_or(0)).len();
    // The bar, a space, the numbers, a space.
    columns.saturating_sub(BAR_COLUMNS + numbers + 2)
}

/// The status line, such as "loss 1.234 · micro-batch 16 · 3:20 left · normal · 230 samples/s · 0.9
/// of 21.6 GB". Leaves out the last parts if the line is longer than `columns` characters, but
/// never the first part.
pub fn status_line(figures: &Figures, started: Option<&Started>, columns: usize) -> String {
    let number = |value: Option<f64>, digits: usize| {
        value.map_or(MISSING.to_owned(), |v| format!("{v:.digits$}"))
    };
    let bytes = |value: Option<u64>| value.map_or(MISSING.to_owned(), format_bytes);
    let micro_batch = figures.micro_batch.map(|samples| samples.to_string());
    let left = figures.seconds_left.map(format_duration);
    let level = match figures.level {
        Level::Normal => "normal",
        Level::Warning => "warning",
        Level::Critical => "critical",
    };
    let parts = [
        format!("loss {}", number(figures.smoothed_loss, 3)),
        format!("micro-batch {}", micro_batch.as_deref().unwrap_or(MISSING)),
        format!("{} left", left.as_deref().unwrap_or(MISSING)),
        level.to_owned(),
        figures
            .samples_per_second
            .map_or_else(|| MISSING.to_owned(), |speed| format_speed(speed, started)),
        format!(
            "{} of {}",
            bytes(figures.own_bytes),
            bytes(figures.budget_bytes)
        ),
    ];
    fitting(parts, columns)
}

/// Joins the first parts that fit into `columns` characters, but at least one part.
fn fitting(parts: impl IntoIterator<Item = String>, columns: usize) -> String {
    let mut parts = parts.into_iter();
    let mut line = parts.next().unwrap_or_default();
    for part in parts {
        let longer = format!("{line} · {part}");
        if longer.chars().count() > columns {
            break;
        }
        line = longer;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        Figures {
            smoothed_loss: Some(1.2341),
            micro_batch: Some(16),
            seconds_left: Some(200.0),
            samples_per_second: Some(230.4),
            own_bytes: Some(1 << 30),
            budget_bytes: Some(20 << 30),
            ..Figures::default()
        }
    }

    #[test]
    fn the_micro_batch_is_visible_at_80_columns() {
        let bar = ProgressBar::hidden();
        bar.set_length(12_000);
        bar.set_position(11_900);
        let columns = 80 - (BAR_COLUMNS + "11900/12000".len() + 2);
        assert_eq!(
            status_line(&figures(), None, columns),
            "loss 1.234 · micro-batch 16 · 3:20 left · normal"
        );
        assert!(columns_beside(&bar) > 0);
    }

    #[test]
    fn a_wide_terminal_shows_everything_and_a_narrow_one_the_loss() {
        let whole = status_line(&figures(), None, usize::MAX);
        assert!(whole.starts_with("loss 1.234 · micro-batch 16 · "));
        assert!(whole.contains(" · 230.4 samples/s · ") && whole.ends_with(" of 20.0 GB"));
        assert_eq!(status_line(&figures(), None, whole.chars().count()), whole);
        assert_eq!(status_line(&figures(), None, 3), "loss 1.234");
        let unknown = status_line(&Figures::default(), None, usize::MAX);
        assert!(
            unknown.contains(&format!("micro-batch {MISSING}")),
            "{unknown}"
        );
    }
}
