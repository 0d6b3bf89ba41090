//! Keeps messages for a page that is not loaded yet: folders dropped on the Dock icon of an app
//! that is not open, or a target of the command line.

use crate::lock_mutex::lock;
use crate::window_types::{NoticeView, Show};
use std::sync::Mutex;

/// Messages to the page. They wait while the page is loaded.
#[derive(Default)]
pub struct EarlyMessages(Mutex<State>);

#[derive(Default)]
struct State {
    page_listens: bool,
    waiting: Waiting,
}

/// The messages that arose before the page listened.
#[derive(Debug, Default, PartialEq)]
pub struct Waiting {
    /// What to show.
    pub show: Option<Show>,
    /// What to report about it.
    pub notice: Option<NoticeView>,
}

impl EarlyMessages {
    /// The page is loaded, perhaps again.
    pub fn page_loads(&self) {
        lock(&self.0).page_listens = false;
    }

    /// The page listens from now on. Returns what waited for it.
    pub fn page_listens(&self) -> Waiting {
        let mut state = lock(&self.0);
        state.page_listens = true;
        std::mem::take(&mut state.waiting)
    }

    /// Shows something by `emit`, which returns whether the page can be reached, or once the page
    /// listens. An earlier notice is about another view, and is dropped.
    pub fn show(&self, show: Show, emit: impl FnOnce(&Show) -> bool) {
        let mut state = lock(&self.0);
        if !(state.page_listens && emit(&show)) {
            state.waiting = Waiting {
                show: Some(show),
                notice: None,
            };
        }
    }

    /// Reports something, now or once the page listens, as [`EarlyMessages::show`] does.
    pub fn notify(&self, notice: NoticeView, emit: impl FnOnce(&NoticeView) -> bool) {
        let mut state = lock(&self.0);
        if !(state.page_listens && emit(&notice)) {
            state.waiting.notice = Some(notice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str) -> Show {
        Show::Run { id: id.to_owned() }
    }

    fn notice(text: &str) -> NoticeView {
        NoticeView {
            text: text.to_owned(),
            is_error: false,
        }
    }

    #[test]
    fn what_arises_before_the_page_listens_waits_for_it_once() {
        let early = EarlyMessages::default();
        early.show(run("r1"), |_| unreachable!("no page listens"));
        early.notify(notice("r2 was left out"), |_| {
            unreachable!("no page listens")
        });
        let waited = Waiting {
            show: Some(run("r1")),
            notice: Some(notice("r2 was left out")),
        };
        assert_eq!(early.page_listens(), waited);
        assert_eq!(early.page_listens(), Waiting::default());
    }

    #[test]
    fn a_page_that_listens_receives_messages_until_it_is_loaded_again() {
        let early = EarlyMessages::default();
        early.page_listens();
        let mut received = Vec::new();
        early.notify(notice("now"), |notice| {
            received.push(notice.text.clone());
            true
        });
        assert_eq!(received, ["now"]);
        early.page_loads();
        early.notify(notice("later"), |_| unreachable!("the page is loaded"));
        assert_eq!(early.page_listens().notice, Some(notice("later")));
        early.show(run("r1"), |_| false);
        assert_eq!(early.page_listens().show, Some(run("r1")));
    }

    #[test]
    fn a_notice_about_an_earlier_view_is_dropped() {
        let early = EarlyMessages::default();
        early.notify(notice("Importing"), |_| false);
        early.show(run("r1"), |_| false);
        assert_eq!(early.page_listens().notice, None);
    }
}
