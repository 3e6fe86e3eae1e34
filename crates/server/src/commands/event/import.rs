//! `paceline event import`: a file of events, a piece at a time.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use bytes::Bytes;

use super::Connection;
use crate::api::bulk::{BulkEnd, LineResult};
use crate::api::events::BatchResult;
use crate::client::Client;
use crate::output::{self, Format};
use crate::progress::{Measure, Progress};

/// Lines of one request: two commits at most, with the bytes below, so that it is
/// answered before the client gives up.
const PIECE_LINES: u32 = 500;

/// Bytes of one request, but for its last line: what is in memory at a time.
const PIECE_BYTES: usize = 1024 * 1024;

/// A little more than the longest line that the API takes, which says what is
/// wrong with it.
const MAX_LINE_BYTES: u64 = 1024 * 1024;

/// Does it; whether all were accepted.
pub(super) async fn run(file: &Path, connection: &Connection) -> anyhow::Result<ExitCode> {
    let client = Client::new(&connection.client)?;
    let (input, measure): (Box<dyn Read>, Measure) = match file.to_str() {
        Some("-") => (Box::new(std::io::stdin()), Measure::Unknown),
        _ => {
            let file =
                std::fs::File::open(file).with_context(|| format!("open {}", file.display()))?;
            // What is no file, such as a pipe, has no length.
            let length = file.metadata().ok().filter(std::fs::Metadata::is_file);
            let bytes = length.map(|about| Measure::Bytes(about.len()));
            (Box::new(file), bytes.unwrap_or(Measure::Unknown))
        }
    };
    let progress = Progress::begin("sending", measure, connection.output);
    let mut bytes = 0;
    let mut pieces = Pieces {
        input: BufReader::new(input),
        lines: 0,
    };
    let (mut accepted, mut refused) = (0, 0);
    loop {
        let before = pieces.lines;
        let so_far = |rest: &str| {
            format!("{accepted} accepted, {refused} refused up to line {before}; {rest}")
        };
        let piece = pieces.next();
        let piece = piece.with_context(|| so_far("nothing after it was sent"))?;
        if piece.is_empty() {
            break;
        }
        bytes += piece.len() as u64;
        let sent = client.post_lines("/v1/events/bulk", piece).await;
        let end =
            sent.and_then(|answer| progress.aside(|| told(&answer, before, connection.output)));
        let end = end.with_context(|| so_far("what became of those after it is not known"))?;
        accepted += end.accepted;
        refused += end.refused;
        progress.at(match measure {
            Measure::Bytes(_) => bytes,
            Measure::Things(_) | Measure::Unknown => pieces.lines.into(),
        });
        if let Some(problem) = end.problem {
            bail!(
                "{accepted} accepted, {refused} refused; the rest was not sent: {}: {}",
                problem.title,
                problem.detail
            );
        }
    }
    drop(progress);
    if connection.output == Format::Table {
        output::line(&format!("{accepted} accepted, {refused} refused"))?;
    }
    Ok(match refused {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Prints what became of each line, as JSON, or of those that were refused; with
/// the numbers that they have in the file.
fn told(answer: &[u8], before: u32, format: Format) -> anyhow::Result<BulkEnd> {
    let mut lines = answer.split(|byte| *byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        // After the last there is an end of a line, and nothing.
        if lines.peek().is_none_or(|rest| rest.is_empty()) {
            return serde_json::from_slice(line)
                .context("the answer broke off: what became of the last lines is not known");
        }
        let mut result: LineResult =
            serde_json::from_slice(line).context("read a line of the answer")?;
        result.line += before;
        match (format, &result.result) {
            // One on each line, as the API answers.
            (Format::Json, _) => output::line(&serde_json::to_string(&result)?)?,
            (Format::Table, BatchResult::Accepted(_)) => {}
            (Format::Table, BatchResult::Refused { problem }) => {
                let field = problem.field.iter().map(|field| format!("{field}: "));
                let field: String = field.collect();
                output::line(&format!("line {}: {field}{}", result.line, problem.detail))?;
            }
        }
    }
    bail!("the answer is empty: what became of the lines is not known")
}

/// A file, some lines at a time.
struct Pieces<R> {
    input: R,
    /// Lines read so far.
    lines: u32,
}

impl<R: BufRead> Pieces<R> {
    /// Empty at the end.
    fn next(&mut self) -> anyhow::Result<Bytes> {
        let (mut piece, first) = (Vec::new(), self.lines);
        while self.lines - first < PIECE_LINES && piece.len() < PIECE_BYTES {
            let begin = piece.len();
            let mut line = (&mut self.input).take(MAX_LINE_BYTES);
            line.read_until(b'\n', &mut piece)
                .with_context(|| format!("read line {}", self.lines + 1))?;
            if piece.len() == begin {
                break;
            }
            self.lines += 1;
            if piece.len() - begin >= MAX_LINE_BYTES as usize && !piece.ends_with(b"\n") {
                bail!("line {} is longer than {MAX_LINE_BYTES} bytes", self.lines);
            }
            if !piece.ends_with(b"\n") {
                piece.push(b'\n');
            }
        }
        Ok(Bytes::from(piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<usize> {
        let mut pieces = Pieces {
            input: text.as_bytes(),
            lines: 0,
        };
        let mut found = Vec::new();
        loop {
            let piece = pieces.next().unwrap();
            if piece.is_empty() {
                return found;
            }
            found.push(piece.iter().filter(|byte| **byte == b'\n').count());
        }
    }

    #[test]
    fn a_file_goes_in_pieces_and_no_line_is_lost() {
        assert!(pieces("").is_empty());
        assert_eq!(pieces("{}"), [1], "the last line has no end");
        assert_eq!(pieces("{}\n\n{}\n"), [3], "empty lines count");
        assert_eq!(pieces(&"{}\n".repeat(1_100)), [500, 500, 100]);
        let long = format!("{}\n", "x".repeat(512 * 1024));
        assert_eq!(pieces(&long.repeat(5)), [2, 2, 1]);
    }

    #[test]
    fn a_line_that_no_memory_should_hold_is_refused() {
        let mut pieces = Pieces {
            input: BufReader::new(std::io::repeat(b'x')),
            lines: 0,
        };
        let refused = pieces.next().unwrap_err().to_string();
        assert!(refused.starts_with("line 1 is longer"), "{refused}");
    }
}
