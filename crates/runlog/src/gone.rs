//! Folding an end without a word: the process is gone, and what the flight recorder says of it. Knows only the fold.

use crate::aftermath::Aftermath;
use crate::lines;
use crate::reduce::Run;
use crate::view::RunStatus;

impl Run {
    /// The caller saw that no process trains this run: without a last word it ended early. Changes nothing otherwise, and
    /// says whether it did.
    pub fn mark_process_gone(&mut self) -> bool {
        let ended = matches!(
            self.status,
            RunStatus::Finished | RunStatus::Stopped | RunStatus::Failed | RunStatus::EndedEarly
        );
        if ended {
            return false;
        }
        self.version += 1;
        self.end(RunStatus::EndedEarly);
        let sentence = lines::ended_early(self.figures.step, None);
        self.say(
            self.now_ms,
            sentence,
            lines::last_checkpoint(self.checkpoints.last()),
        );
        true
    }

    /// What the flight recorder says of a run that ended early.
    pub fn recall(&mut self, aftermath: Aftermath) {
        self.version += 1;
        self.line.sentence = lines::ended_early(self.figures.step, Some(aftermath.level));
        self.line.level = aftermath.level;
        self.last_minutes = aftermath.sentences;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{RunEvent, Started};
    use pressure::Level;

    fn ended(level: Level) -> Run {
        let mut run = Run::default();
        run.apply(&RunEvent::Started(Box::default()));
        assert!(run.mark_process_gone() && !run.mark_process_gone());
        run.recall(Aftermath {
            end_unix_ms: 2,
            reading_unix_ms: 1,
            level,
            highest_pressure: 0.9,
            sentences: vec!["The last reading was at 14:02:11".into()],
        });
        run
    }

    #[test]
    fn an_end_without_a_word_says_how_memory_was() {
        for (level, memory) in [
            (Level::Normal, ""),
            (Level::Warning, " while memory was short"),
            (Level::Critical, " while memory was critical"),
        ] {
            let run = ended(level);
            let sentence = format!("Ended before the first step{memory}: its process is gone");
            assert_eq!(run.line().sentence, sentence);
            assert_eq!(run.last_minutes(), ["The last reading was at 14:02:11"]);
        }
    }

    #[test]
    fn a_run_that_goes_on_forgets_its_last_minutes() {
        for event in [
            RunEvent::Started(Box::<Started>::default()),
            RunEvent::Resumed {
                at_ms: 5,
                unix_ms: 0,
                step: 0,
                process: 1,
                device: "cpu".into(),
            },
        ] {
            let mut run = ended(Level::Critical);
            run.apply(&event);
            assert!(run.last_minutes().is_empty(), "{event:?}");
        }
    }
}
