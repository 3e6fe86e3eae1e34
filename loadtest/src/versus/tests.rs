use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn parsed(words: &[&str]) -> Result<Args, String> {
    let program = std::iter::once("versus");
    match Cli::try_parse_from(program.chain(words.iter().copied())) {
        Ok(cli) => Ok(cli.args),
        Err(error) => Err(error.to_string()),
    }
}

fn args(words: &[&str]) -> Args {
    parsed(words).unwrap()
}

#[test]
fn both_sizes_a_drain_and_two_limits() {
    let args = args(&[]);
    assert!(args.check().is_ok());
    assert_eq!(args.sizes(), [Size::Embedded, Size::Distributed]);
    let parts: Vec<_> = args.parts().iter().map(ToString::to_string).collect();
    assert_eq!(parts, ["drain of 100,000", "100/s", "1000/s"]);
    assert_eq!((args.pairs, args.destinations), (3, 200));
    assert!(args.servers().is_empty(), "all of them");
}

#[test]
fn some_of_it() {
    let some = args(&[
        "--only",
        "limits",
        "--limits",
        "5/s,60/min",
        "--seconds",
        "120",
    ]);
    let parts: Vec<_> = some.parts().iter().map(ToString::to_string).collect();
    assert_eq!(parts, ["5/s", "60/min"]);
    let embedded = args(&["--sizes", "embedded", "--only", "drain"]);
    assert_eq!(embedded.servers(), ["redis"]);
    assert_eq!(embedded.parts().len(), 1);
}

#[test]
fn what_makes_no_sense_is_refused_by_its_name() {
    for (words, named) in [
        (["--limits", "unlimited"], "--limits"),
        (["--limits", "5/h"], "--limits"),
        (["--limits", "100001/s"], "--limits"),
        (["--pairs", "0"], "--pairs"),
        (["--in-flight", "8"], "--in-flight"),
        (["--redis-fsync", "never"], "--redis-fsync"),
    ] {
        let error = parsed(&words).unwrap_err();
        assert!(error.contains(named), "{words:?}: {error}");
    }
    let refused = |words: &[&str]| args(words).check().unwrap_err().to_string();
    let short = refused(&["--limits", "100/min"]);
    assert!(
        short.starts_with("--seconds must be at least 120"),
        "{short}"
    );
    let few = refused(&["--events", "100", "--destinations", "101"]);
    assert!(few.starts_with("--destinations"), "{few}");
    assert!(
        args(&["--limits", "100/min", "--only", "drain"])
            .check()
            .is_ok()
    );
}

#[test]
fn a_backlog_outlasts_the_measurement_even_where_windows_are_overfull() {
    let args = args(&["--seconds", "20"]);
    let events = |limit: &str| args.settings(Part::Limit(limit.parse().unwrap())).events;
    assert_eq!((events("100/s"), events("1000/s")), (2_700, 27_000));
    assert!(events("60/min") >= 145);
    let drain = args.settings(Part::Drain { events: 500 });
    assert_eq!(
        (drain.events, drain.hot, drain.limit),
        (500, 200, Limit::Unlimited)
    );
}

#[test]
fn a_warming_up_does_not_use_a_limit_up() {
    let args = args(&[]);
    let of = |limit: &str| args.warm_up(Part::Limit(limit.parse().unwrap()));
    assert_eq!([of("1/s"), of("100/s"), of("1000/s")], [1, 50, 500]);
    let drain = |events| args.warm_up(Part::Drain { events });
    assert_eq!([drain(100), drain(100_000)], [10, 5_000]);
}
