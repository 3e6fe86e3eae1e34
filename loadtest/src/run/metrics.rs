//! The figures of a report by name, for thresholds and comparisons.

/// A figure that a report may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
}

const fn metric(name: &'static str, what: &'static str) -> Metric {
    Metric { name, what }
}

/// All of them, in the order in which they are shown.
pub(crate) const METRICS: &[Metric] = &[
    metric("offered", "events that were due"),
    metric("accepted", "events that the API answered with a success"),
    metric("refused", "events that the API answered otherwise"),
    metric("unanswered", "events that were not sent or not answered"),
    metric("delivered", "events that arrived and were taken"),
    metric(
        "duplicates",
        "deliveries of events that had been taken already",
    ),
    metric(
        "undelivered",
        "accepted events that had not arrived at the end",
    ),
    metric("lost", "undelivered events that nothing waits for"),
    metric("requests", "requests at the receiver, failed ones too"),
    metric("offered_per_second", "due while the load lasted"),
    metric("accepted_per_second", "accepted while the load lasted"),
    metric("delivered_per_second", "delivered while the load lasted"),
    metric(
        "overall_per_second",
        "delivered, from the first event to the last delivery",
    ),
    metric("drain_seconds", "from the load's end to the last delivery"),
    metric(
        "drained_per_second",
        "delivered after being held, from the release to the last delivery",
    ),
    metric("p50_ms", "from accepted to the first byte at the receiver"),
    metric("p90_ms", "the same"),
    metric("p99_ms", "the same"),
    metric("p999_ms", "the same"),
    metric("max_ms", "the same"),
    metric("noisy_p99_ms", "the same, of the noisy tenant"),
    metric("quiet_p99_ms", "the same, of the other tenant"),
    metric("ingest_p50_ms", "from sent to accepted"),
    metric("ingest_p99_ms", "the same"),
    metric("start_p50_ms", "from due to start, by the ledger"),
    metric("start_p99_ms", "the same"),
    metric(
        "late_p50_ms",
        "from due, or from when the limit allowed it, to start, by the ledger",
    ),
    metric("late_p99_ms", "the same"),
    metric(
        "client_late_p99_ms",
        "how late the client sent what was due",
    ),
    metric(
        "early_arrivals",
        "arrivals beyond a limit at a receiver, that no stall of its own explains",
    ),
    metric(
        "explained_arrivals",
        "the same where the receiver stood still itself",
    ),
    metric(
        "fullest_whole_window",
        "arrivals in the fullest whole period, where shorter windows are judged",
    ),
    metric("early_starts", "starts that broke a limit, by the ledger"),
    metric(
        "unfounded_failures",
        "attempts that failed without an answer of a receiver",
    ),
    metric(
        "stalled_seconds",
        "in which nothing was delivered while something waited that no limit held",
    ),
    metric(
        "stragglers_seconds",
        "from 99 % of what waited at the load's end to the last of it",
    ),
    metric(
        "least_share_percent",
        "the smallest share of its limits that a destination got",
    ),
    metric(
        "cpu_us_per_delivery",
        "of all processes, the client's and the receiver's too",
    ),
    metric(
        "writer_us_per_delivery",
        "of the thread that writes to SQLite; its process's has it too",
    ),
    metric("cpu_cores", "cores that were busy, on average"),
    metric("statements_per_delivery", "SQL statements"),
    metric("transactions_per_delivery", "SQL transactions"),
    metric("wal_bytes_per_delivery", "bytes of Postgres's log"),
];

/// Figures of each process: the name goes on with a dot and the process.
pub(crate) const FAMILIES: &[Metric] = &[
    metric(
        "cpu_us_per_delivery",
        "of one process, such as `cpu_us_per_delivery.worker`",
    ),
    metric(
        "peak_rss_mib",
        "memory of one process, such as `peak_rss_mib.api`",
    ),
    metric(
        "rss_growth",
        "most memory of one process in the load's last tenth, to its first",
    ),
];

/// Whether a report may have a figure of this name.
pub(crate) fn is_known(name: &str) -> bool {
    let plain = METRICS.iter().any(|metric| metric.name == name);
    let of_process = name.split_once('.').is_some_and(|(family, process)| {
        !process.is_empty() && FAMILIES.iter().any(|metric| metric.name == family)
    });
    plain || of_process
}

/// All names, for whoever has given another one.
pub(crate) fn names() -> String {
    let plain = METRICS.iter().map(|metric| metric.name.to_owned());
    let families = FAMILIES
        .iter()
        .map(|metric| format!("{}.PROCESS", metric.name));
    plain.chain(families).collect::<Vec<_>>().join(", ")
}

/// What a name means.
pub(crate) fn meaning(name: &str) -> &'static str {
    let of_process = name.split_once('.').map(|(family, _)| family);
    let (among, wanted) = match of_process {
        Some(family) => (FAMILIES, family),
        None => (METRICS, name),
    };
    let found = among.iter().find(|metric| metric.name == wanted);
    found.map_or("", |metric| metric.what)
}

/// The value that so many per mille do not exceed; zero of none. Sorted.
pub(crate) fn per_mille(sorted: &[u64], per_mille: u64) -> u64 {
    let rank = (sorted.len() as u64 * per_mille).div_ceil(1_000).max(1);
    let index = usize::try_from(rank - 1).unwrap_or(usize::MAX);
    sorted.get(index).or(sorted.last()).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_with_and_without_a_process() {
        assert!(is_known("p99_ms"));
        assert!(is_known("cpu_us_per_delivery"));
        assert!(is_known("cpu_us_per_delivery.worker"));
        assert!(!is_known("cpu_us_per_delivery."));
        assert!(!is_known("p98_ms"));
        assert!(!is_known("p99_ms.worker"));
        assert!(names().contains("peak_rss_mib.PROCESS"));
        assert_eq!(meaning("lost"), "undelivered events that nothing waits for");
        assert!(meaning("peak_rss_mib.api").contains("memory"));
        assert_eq!(meaning("what"), "");
    }

    #[test]
    fn percentiles_are_values_that_were_there() {
        let hundred: Vec<u64> = (1..=100).collect();
        let at = |of| per_mille(&hundred, of);
        assert_eq!(
            [at(0), at(500), at(990), at(999), at(1_000)],
            [1, 50, 99, 100, 100]
        );
        assert_eq!(per_mille(&[7], 990), 7);
        assert_eq!(per_mille(&[], 990), 0);
    }
}
