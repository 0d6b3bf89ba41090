//! What a native app does: one instance, a window that may be closed while it trains, a question
//! before it quits, and a size that is remembered.

use crate::support::home::Home;
use crate::support::window::Window;
use crate::support::{until, xdotool};
use crate::{SOON, ended_as_stopped, sample, training};
use serde_json::json;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Writes the title of every notification into a file, as a desktop would show it.
const NOTIFICATIONS: &str = r#"
import sys, gi
from gi.repository import Gio, GLib
NAME = "org.freedesktop.Notifications"
types = ["s", "u", "s", "s", "s", "as", "a{sv}", "i"]
arguments = "".join(f"<arg type='{t}' direction='in'/>" for t in types)
xml = f"<node><interface name='{NAME}'><method name='Notify'>{arguments}<arg type='u' direction='out'/></method></interface></node>"
interface = Gio.DBusNodeInfo.new_for_xml(xml).interfaces[0]

def call(bus, sender, path, interface, method, values, invocation):
    with open(sys.argv[1], "a") as file:
        file.write(values.unpack()[3] + "\n")
    invocation.return_value(GLib.Variant("(u)", (1,)))

def acquired(bus, name):
    bus.register_object("/org/freedesktop/Notifications", interface, call, None, None)

def owned(bus, name):
    open(sys.argv[1], "a").close()

Gio.bus_own_name(Gio.BusType.SESSION, NAME, Gio.BusNameOwnerFlags.REPLACE, acquired, owned, None)
GLib.MainLoop().run()
"#;

/// Starts Ebb once more with the same home.
fn again(home: &Home, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ebb"))
        .arg("app")
        .args(args)
        .env("EBB_HOME", home.path())
        .output()
        .expect("the binary runs")
}

/// The window, if it is on the screen and not minimized.
fn shown() -> Option<String> {
    let found = xdotool::xdotool(&["search", "--onlyvisible", "--name", "^Ebb$"])?;
    found.lines().last().map(str::to_owned)
}

/// Longest wait for the reaction to a key, before the key is pressed again.
const REACTS_WITHIN: Duration = Duration::from_secs(3);

/// Presses a key in a window until `wanted` returns a value. The key is pressed again only if the
/// window did not react: it may have lost the keyboard to another window.
fn press_until<T>(
    key: &str,
    what: &str,
    window: &dyn Fn() -> Option<String>,
    wanted: impl Fn() -> Option<T>,
) -> T {
    until(what, SOON, || {
        if let Some(found) = wanted() {
            return Some(found);
        }
        xdotool::activate(&window()?);
        let _ = xdotool::xdotool(&["key", key]);
        let pressed = Instant::now();
        while pressed.elapsed() < REACTS_WITHIN {
            if let Some(found) = wanted() {
                return Some(found);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    })
}

#[test]
fn a_second_start_hands_its_folder_to_the_first() {
    let home = Home::new();
    let window = Window::open(&["app"], home.path());
    let start = Instant::now();
    let second = again(&home, &[&sample().display().to_string()]);
    assert!(second.status.success(), "{second:?}");
    println!("handed over in {:.1?}", start.elapsed());
    window.wait_for(
        "the first window shows the folder",
        "return document.querySelector('#train:enabled') && document.body.textContent.includes('groceries') || null",
    );
    let elsewhere = again(&home, &["/no/such/folder"]);
    assert!(elsewhere.status.success(), "the window says what is wrong");
    window.wait_for(
        "the refusal",
        "return document.querySelector('.proposal .refusal')?.textContent.includes('/no/such/folder') || null",
    );
}

#[test]
fn closing_keeps_the_training_and_quitting_asks() {
    let home = Home::new();
    let _manager = xdotool::manager();
    let (window, run, _) = training(&home);
    until("it trains", SOON, || (home.step(&run) >= 3).then_some(()));
    press_until("alt+F4", "the window is closed", &shown, || {
        shown().is_none().then_some(())
    });
    let before = home.step(&run);
    until("it trains without a window", SOON, || {
        (home.step(&run) > before + 2).then_some(())
    });
    assert!(again(&home, &[]).status.success());
    until("the window is back", SOON, shown);
    window.wait_for_status("training");

    let question = || {
        let found = xdotool::xdotool(&["search", "--onlyvisible", "--name", "^Stop the training"])?;
        found.lines().last().map(str::to_owned)
    };
    let ask_to_quit = || press_until("ctrl+q", "the question stands", &shown, question);
    let answer = |key: &str| {
        press_until(key, "the question is answered", &question, || {
            question().is_none().then_some(())
        });
    };
    ask_to_quit();
    let before = home.step(&run);
    until("it trains while the question stands", SOON, || {
        (home.step(&run) > before + 2).then_some(())
    });
    answer("Escape");
    let before = home.step(&run);
    until("it trains on", SOON, || {
        (home.step(&run) > before + 2).then_some(())
    });
    let stopped = |event: &serde_json::Value| event["kind"] == "stopped";
    assert!(
        !home.events(&run).iter().any(stopped),
        "nothing was stopped"
    );
    ask_to_quit();
    answer("Return");
    ended_as_stopped(&window, &home, &run);
    assert!(
        !home.checkpoints(&run).is_empty(),
        "a checkpoint is on disk"
    );
}

#[test]
fn the_size_of_the_window_is_remembered() {
    let home = Home::new();
    let window = Window::open(&["app"], home.path());
    window.resize(1300, 820);
    let app = window.processes("ebb").pop().expect("the app lives");
    let ended = Command::new("kill").args(["-TERM", &app]).status();
    assert!(ended.expect("kill runs").success());
    until("the app ends", SOON, || {
        window.processes("ebb").is_empty().then_some(())
    });
    drop(window);
    let window = Window::open(&["app"], home.path());
    window.wait_for(
        "the size of before",
        "return innerWidth === 1300 && innerHeight === 820 || null",
    );
}

#[test]
fn the_palette_performs_what_it_offers() {
    let home = Home::new();
    let _manager = xdotool::manager();
    let window = Window::open(&["app"], home.path());
    let is = |script: &str| (window.run(script) == json!(true)).then_some(());
    press_until("ctrl+k", "the palette opens", &shown, || {
        is(
            "return document.hasFocus() && document.activeElement.closest('#palette[open]') !== null",
        )
    });
    let offered = window.run(
        "return [...document.querySelectorAll('[data-command]')].map((item) => item.dataset.command)",
    );
    let offered = offered.to_string();
    assert!(
        offered.contains("\"sample\"") && !offered.contains("\"stop\""),
        "{offered}"
    );
    window.screenshot("palette");
    let _ = xdotool::xdotool(&["type", "--delay", "20", "open the sam"]);
    window.wait_for(
        "one command is left",
        "return document.querySelectorAll('[data-command]').length === 1 || null",
    );
    press_until("Return", "the palette performs it", &shown, || {
        is("return document.body.dataset.view === 'plan'")
    });
    window.wait_for(
        "the sample",
        "return document.querySelector('#train:enabled') ? true : null",
    );
}

#[test]
fn a_training_that_finishes_in_the_background_is_news() {
    let home = Home::new();
    let _manager = xdotool::manager();
    let titles = home.path().join("titles");
    let mut desktop = Command::new("/usr/bin/python3");
    let _desktop = xdotool::running(
        desktop.args(["-c", NOTIFICATIONS]).arg(&titles),
        "python3 is missing: run scripts/setup test",
    );
    until("there is a desktop", SOON, || titles.exists().then_some(()));
    let window = Window::open(&["app"], home.path());
    window.click("#open-sample");
    window.wait_for(
        "a plan",
        "return document.querySelector('#train:enabled') ? true : null",
    );
    // Long enough that it still trains when the window has been closed.
    window.set(&[("epochs", "6"), ("resolution", "64")]);
    window.click("#train");
    let run = window.run_id();
    until("it trains", SOON, || (home.step(&run) >= 1).then_some(()));
    window
        .invoke("close_window", &json!({}))
        .expect("it can be closed");
    let titles_shown = || std::fs::read_to_string(&titles).unwrap_or_default();
    until("closing is explained", SOON, || {
        titles_shown()
            .contains("groceries is still training")
            .then_some(())
    });
    until("the end is news", 3 * SOON, || {
        titles_shown().contains("groceries finished").then_some(())
    });
}
