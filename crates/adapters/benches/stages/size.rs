//! How much there is of what a stage works on.

/// Jobs or permits in one call: what a busy scheduler and a busy worker hand
/// over at once.
pub(crate) const BATCH: usize = 100;

/// Backlogs that are measured, in rows or jobs: those of `PACELINE_BENCH_ROWS`,
/// separated by commas; else 10^3 to 10^6. Only the smallest where nothing is
/// measured: `cargo bench` says so by an argument, `cargo test` does not.
pub(crate) fn sizes() -> Vec<u32> {
    let measured = std::env::args().any(|argument| argument == "--bench");
    let given = std::env::var("PACELINE_BENCH_ROWS").ok();
    let given = given.filter(|_| measured).map(|rows| {
        let size = |text: &str| {
            text.trim()
                .parse()
                .expect("PACELINE_BENCH_ROWS has numbers")
        };
        rows.split(',').map(size).collect()
    });
    given.unwrap_or_else(|| match measured {
        true => vec![1_000, 10_000, 100_000, 1_000_000],
        false => vec![1_000],
    })
}
