//! `cargo run --release -p protocol`: every state of the protocols, within
//! the bounds of [`protocol::suite`]. Exits with 1 if a property does not hold
//! or a situation that the models are there for is never reached.
//!
//! `--deeper` takes larger bounds, too.

use std::io::{self, Write};
use std::process::ExitCode;

use protocol::check::Report;
use protocol::suite::{self, Depth, Part};

fn main() -> io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let depth = match arguments.first().map(String::as_str) {
        None => Depth::Usual,
        Some("--deeper") if arguments.len() == 1 => Depth::Deeper,
        Some(_) => {
            writeln!(io::stderr(), "usage: protocol [--deeper]")?;
            return Ok(ExitCode::from(2));
        }
    };
    let mut out = io::stdout().lock();
    let protocols = [
        ("the admission protocol", suite::admission(depth)),
        ("claims and sends", suite::sends(depth)),
        ("where answers count", suite::answers(depth)),
        ("limit groups", suite::groups(depth)),
        ("the wake protocol", suite::schedule(depth)),
    ];
    let (mut states, mut holds) = (0, true);
    for (protocol, parts) in &protocols {
        let report = print(&mut out, protocol, parts)?;
        states += report.unique_states;
        holds &= report.holds();
    }
    let verdict = if holds { "all holds" } else { "NOT all holds" };
    writeln!(out, "{states} unique states, {verdict}")?;
    Ok(if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn print(out: &mut impl Write, protocol: &str, parts: &[Part]) -> io::Result<Report> {
    let all = Report::of_all(parts.iter().map(|part| &part.report));
    let (states, depth) = (all.unique_states, all.depth);
    writeln!(out, "{protocol}: {states} unique states, {depth} deep")?;
    for Part { name, report } in parts {
        let (states, depth) = (report.unique_states, report.depth);
        writeln!(out, "  {states:>9}  {depth:>3} deep  {name}")?;
    }
    writeln!(out, "{all}")?;
    Ok(all)
}
