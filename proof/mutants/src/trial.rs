//! One run of one test, with a mutant or without.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::mutant::Killer;
use crate::programs::Program;

/// A test that takes longer hangs, which kills nothing: a test has to say what
/// is wrong.
const PATIENCE: Duration = Duration::from_secs(180);

const POLL: Duration = Duration::from_millis(10);

/// Property tests draw the same cases in every run, and leave no file behind.
/// A smaller counterexample is not needed.
const SEEDED: [(&str, &str); 3] = [
    ("PROPTEST_RNG_SEED", "20240229"),
    ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true"),
    ("PROPTEST_MAX_SHRINK_ITERS", "0"),
];

/// What became of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It ran and passed.
    Passed,
    /// It ran, and failed with these words.
    Failed(String),
    /// There is no such test.
    Missing,
    /// It did not come to an end by itself, or the program died otherwise.
    Neither(String),
}

/// Runs the killer once.
pub(crate) fn run(program: &Program, killer: Killer, mutant: Option<&str>) -> Result<Answer> {
    let mut test = Command::new(&program.executable);
    test.args(["--exact", killer.test, "--test-threads=1", "--nocapture"]);
    test.current_dir(&program.folder);
    test.env("CARGO_MANIFEST_DIR", &program.folder);
    test.env("RUST_BACKTRACE", "0").envs(SEEDED);
    // A name that no mutant has, so that the switch alone kills nothing.
    test.env("PACELINE_MUTANT", mutant.unwrap_or("none"));
    test.stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = test
        .spawn()
        .with_context(|| program.executable.display().to_string())?;
    let stdout = reader(child.stdout.take());
    let stderr = reader(child.stderr.take());
    let ended = wait(&mut child)?;
    let said = [stdout, stderr].map(|reader| reader.join().unwrap_or_default());
    Ok(match ended {
        true => judge(killer, &said[0], &said[1]),
        false => Answer::Neither(format!("it hung for {} s", PATIENCE.as_secs())),
    })
}

/// The clock that real processes run by.
#[expect(clippy::disallowed_methods, reason = "no runtime, no virtual time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Reads to the end on a thread of its own, so that neither pipe fills up.
fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read up to an error is what there is.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether it ended by itself.
fn wait(child: &mut Child) -> Result<bool> {
    let deadline = now() + PATIENCE;
    loop {
        if child.try_wait()?.is_some() {
            return Ok(true);
        }
        if now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        #[expect(clippy::disallowed_methods, reason = "a thread that only waits")]
        thread::sleep(POLL);
    }
}

/// By what the test program says of this very test: a program that dies before
/// it has said anything has killed nothing.
fn judge(killer: Killer, stdout: &str, stderr: &str) -> Answer {
    let counts = |passed, failed| {
        let line = format!("{passed} passed; {failed} failed;");
        stdout
            .lines()
            .any(|l| l.starts_with("test result:") && l.contains(&line))
    };
    if counts(1, 0) {
        return Answer::Passed;
    }
    if counts(0, 0) {
        return Answer::Missing;
    }
    let panicked = panic_message(stderr).or_else(|| panic_message(stdout));
    match panicked {
        Some(message) if counts(0, 1) => Answer::Failed(message),
        _ => Answer::Neither(format!("{} died: {}", killer.target, last_line(stderr))),
    }
}

/// The first lines of the first panic.
fn panic_message(said: &str) -> Option<String> {
    let mut lines = said
        .lines()
        .skip_while(|line| !line.contains("panicked at"));
    lines.next()?;
    let message: Vec<_> = (lines.take(3))
        .take_while(|line| !line.starts_with("note: "))
        .map(str::trim)
        .collect();
    Some(message.join(" "))
}

fn last_line(said: &str) -> &str {
    said.lines().last().unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(stdout: &str, stderr: &str) -> Answer {
        let killer = Killer {
            target: "loops",
            test: "a::test",
        };
        judge(killer, stdout, stderr)
    }

    #[test]
    fn only_a_panic_of_that_very_test_is_a_failure() {
        let failed = "test a::test ... FAILED\n\
            test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out;";
        let panic = "thread 'a::test' panicked at a.rs:1:2:\nassertion failed\n";
        let message = Answer::Failed("assertion failed".to_owned());
        assert_eq!(judged(failed, panic), message);
        let died = "running 1 test\n";
        assert!(matches!(judged(died, panic), Answer::Neither(_)));
        assert!(matches!(judged("", "killed"), Answer::Neither(_)));
    }

    #[test]
    fn a_test_that_is_not_there_is_no_success() {
        let line = |counts| format!("test result: ok. {counts}; 0 ignored;");
        assert_eq!(judged(&line("1 passed; 0 failed"), ""), Answer::Passed);
        assert_eq!(judged(&line("0 passed; 0 failed"), ""), Answer::Missing);
    }
}
