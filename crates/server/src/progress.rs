//! How far long work is: on the terminal of whoever waits, and nowhere else.
//!
//! It is drawn on standard error, so that what a command prints can be cut and
//! pasted or piped. Where that is no terminal, and where a program reads the
//! output, nothing is drawn.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Format;

/// How often something turns while nothing can be counted.
const TURN: Duration = Duration::from_millis(120);

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// So many bytes.
    Bytes(u64),
    /// So many things.
    Things(u64),
    /// Nobody knows how many things.
    Unknown,
}

/// A line about work that goes on; gone when it is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// About `what`, where somebody watches.
    #[must_use]
    pub fn begin(what: &'static str, measure: Measure, format: Format) -> Self {
        match is_shown(format, io::stderr().is_terminal()) {
            true => {
                let progress = Self::on(ProgressDrawTarget::stderr(), what, measure);
                progress.0.enable_steady_tick(TURN);
                progress
            }
            false => Self(ProgressBar::hidden()),
        }
    }

    fn on(target: ProgressDrawTarget, what: &'static str, measure: Measure) -> Self {
        let (length, template) = match measure {
            Measure::Bytes(all) => (
                Some(all),
                "{msg} {bar:30} {bytes} of {total_bytes}, {eta} left",
            ),
            Measure::Things(all) => (Some(all), "{msg} {bar:30} {pos} of {len}, {eta} left"),
            Measure::Unknown => (None, "{spinner} {msg} {pos}"),
        };
        let bar = ProgressBar::with_draw_target(length, target);
        let style = ProgressStyle::with_template(template).expect("the template is one of ours");
        Self(bar.with_style(style).with_message(what))
    }

    /// So far it has come.
    pub fn at(&self, done: u64) {
        self.0.set_position(done);
    }

    /// There are more than was thought, or fewer.
    pub fn of(&self, all: u64) {
        self.0.set_length(all);
    }

    /// Prints beside it.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn is_shown(format: Format, is_terminal: bool) -> bool {
    is_terminal && format != Format::Json
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that remembers what was written since it was last cleared.
    #[derive(Debug, Clone, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl Screen {
        fn text(&self) -> String {
            self.0.lock().unwrap().clone()
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            120
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.0.lock().unwrap().clear();
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn on_screen(measure: Measure) -> (Progress, Screen) {
        let screen = Screen::default();
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        (Progress::on(target, "sending", measure), screen)
    }

    #[test]
    fn it_says_how_far_it_is_and_goes_when_it_is_done() {
        let (bytes, screen) = on_screen(Measure::Bytes(4 * 1024));
        bytes.at(1024);
        bytes.0.tick();
        let said = screen.text();
        assert!(said.contains("sending"), "{said:?}");
        assert!(said.contains("1.00 KiB of 4.00 KiB"), "{said:?}");
        drop(bytes);
        let left = screen.text();
        assert!(!left.contains("sending"), "{left:?}");

        let (things, screen) = on_screen(Measure::Things(2));
        things.of(10);
        things.at(7);
        things.0.tick();
        assert!(screen.text().contains("7 of 10"), "{:?}", screen.text());

        let (unknown, screen) = on_screen(Measure::Unknown);
        unknown.at(3);
        unknown.0.tick();
        assert!(screen.text().contains("sending 3"), "{:?}", screen.text());
    }

    #[test]
    fn it_is_for_people_at_a_terminal() {
        assert!(is_shown(Format::Table, true));
        assert!(!is_shown(Format::Table, false));
        assert!(!is_shown(Format::Json, true));
        assert!(!is_shown(Format::Json, false));
    }
}
