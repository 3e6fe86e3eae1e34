//! The report as one page that needs nothing else.

use std::fmt::Write;

use super::charts::{self, Bars, Line, escaped};
use super::metrics::meaning;
use super::report::{Report, Second, number};
use super::table::{WAY_HEADER, heading, way_cells};

pub(crate) const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1c2430;--faint:#c9ced6;--back:#fff}\
@media(prefers-color-scheme:dark){:root{--text:#dde3ea;--faint:#3c4654;--back:#12171e}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);\
max-width:900px;margin:2em auto;padding:0 1em}\
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}\
table{border-collapse:collapse;width:100%}\
td,th{text-align:left;padding:.2em .8em .2em 0;border-bottom:1px solid var(--faint)}\
.n{text-align:right;font-variant-numeric:tabular-nums}\
svg{width:100%;height:auto}text{font-size:12px;fill:var(--text)}\
.grid{stroke:var(--faint)}.line{fill:none;stroke-width:2}.mark{stroke-width:2}\
.bar.c0{fill:#2f6fde}.bar.c1{fill:#e0862a}.bar.c2{fill:#2e9e63}.bar.c3{fill:#c2417c}\
.bar.c4{fill:#7a58c9}.bar.c5{fill:#1c9bb0}.bar.c6{fill:#a88418}.bar.c7{fill:#c9503c}\
.bar.c8{fill:#6b7785}.bar.c9{fill:#8dbb3c}\
.line.c0,.mark.c0{stroke:#2f6fde}.line.c1,.mark.c1{stroke:#e0862a}\
.line.c2,.mark.c2{stroke:#2e9e63}.line.c3,.mark.c3{stroke:#c2417c}";

/// The whole page.
pub(crate) fn page(report: &Report) -> String {
    let title = escaped(&heading(report));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
    );
    for note in &report.notes {
        let _ = write!(page, "<p>Note: {}.</p>", escaped(note));
    }
    chart(
        &mut page,
        "Offered, accepted and delivered in each second",
        &rates(report),
    );
    chart(
        &mut page,
        "Accepted and not yet delivered, at each second's end",
        &backlog(report),
    );
    chart(
        &mut page,
        "Latency from accepted to the first byte",
        &latency(report),
    );
    chart(
        &mut page,
        "Its 99th percentile in each second, in ms",
        &latencies(report),
    );
    if !report.destinations.is_empty() {
        let title = format!(
            "Starts in the fullest window, worst of {} destinations",
            number(report.judged as f64)
        );
        chart(&mut page, &title, &windows(report));
    }
    if !report.processes.is_empty() {
        chart(&mut page, "CPU µs per delivery by process", &cpu(report));
    }
    page.push_str(&figures(report));
    page.push_str(&processes(report));
    page.push_str(&statements(report));
    page.push_str(&side_by_side(report));
    page.push_str("</body></html>\n");
    page
}

fn chart(page: &mut String, title: &str, svg: &str) {
    let _ = write!(page, "<h2>{}</h2>{svg}", escaped(title));
}

fn series(report: &Report, value: fn(&Second) -> f64) -> Vec<f64> {
    report.seconds.iter().map(value).collect()
}

fn rates(report: &Report) -> String {
    charts::lines(&[
        Line {
            name: "offered",
            values: series(report, |second| second.offered as f64),
        },
        Line {
            name: "accepted",
            values: series(report, |second| second.accepted as f64),
        },
        Line {
            name: "delivered",
            values: series(report, |second| second.delivered as f64),
        },
    ])
}

fn backlog(report: &Report) -> String {
    charts::lines(&[Line {
        name: "backlog",
        values: series(report, |second| second.backlog as f64),
    }])
}

fn latencies(report: &Report) -> String {
    charts::lines(&[Line {
        name: "p99",
        values: series(report, |second| second.p99_ms),
    }])
}

fn latency(report: &Report) -> String {
    let named = [
        ("p50", "p50_ms"),
        ("p90", "p90_ms"),
        ("p99", "p99_ms"),
        ("p99.9", "p999_ms"),
        ("max", "max_ms"),
    ];
    let row = |(name, metric): (&str, &str)| {
        Some(Bars {
            name: name.to_owned(),
            values: vec![Some(report.metric(metric)?)],
            mark: None,
        })
    };
    let rows: Vec<_> = named.into_iter().filter_map(row).collect();
    charts::bars(&["ms"], "", &rows)
}

fn windows(report: &Report) -> String {
    let row = |one: &super::judging::Judged| Bars {
        name: format!("{} / {} s", one.destination, one.period_seconds),
        values: vec![
            one.worst_at_sender.map(|starts| starts as f64),
            Some(one.worst_at_receiver as f64),
        ],
        mark: one.bound.map(|bound| bound as f64),
    };
    let rows: Vec<_> = report.destinations.iter().map(row).collect();
    let limited = rows.iter().any(|row| row.mark.is_some());
    let mark = if limited { "limit" } else { "" };
    charts::bars(&["at the sender", "at the receiver"], mark, &rows)
}

fn cpu(report: &Report) -> String {
    let part =
        |process: &super::report::Process| (process.name.clone(), process.cpu_us_per_delivery);
    let parts: Vec<_> = report.processes.iter().map(part).collect();
    charts::stacked(&parts)
}

fn figures(report: &Report) -> String {
    let rows = report
        .in_order()
        .map(|(name, value)| [name.to_owned(), number(value), meaning(name).to_owned()]);
    table("All figures", &["Figure", "Measured", ""], rows)
}

fn processes(report: &Report) -> String {
    let rows = report.processes.iter().map(|process| {
        [
            process.name.clone(),
            number(process.cpu_seconds),
            number(process.in_kernel_percent),
            number(process.peak_rss_mib),
        ]
    });
    let header = ["Process", "CPU s", "In the kernel %", "Peak RSS MiB"];
    table("Processes", &header, rows)
}

fn statements(report: &Report) -> String {
    if report.statements.is_empty() {
        return String::new();
    }
    let rows = report.statements.iter().map(|one| {
        [
            one.name.clone(),
            number(one.calls as f64),
            number(one.rows as f64),
            number(one.total_ms),
            number(one.wal_bytes as f64),
        ]
    });
    let header = ["Statement", "Calls", "Rows", "ms in all", "WAL bytes"];
    table("Statements that took the longest", &header, rows)
}

fn side_by_side(report: &Report) -> String {
    if report.side_by_side.is_empty() {
        return String::new();
    }
    let rows = report.side_by_side.iter().map(way_cells);
    table(
        "The same traffic under other ways to limit it",
        &WAY_HEADER,
        rows,
    )
}

/// A table whose columns are numbers but for the first and one without a name.
pub(crate) fn table<const N: usize>(
    title: &str,
    header: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let class = |column: usize| {
        if column == 0 || header[column].is_empty() {
            ""
        } else {
            " class=\"n\""
        }
    };
    let mut html = format!("<h2>{}</h2><table><tr>", escaped(title));
    for (column, name) in header.iter().enumerate() {
        let _ = write!(html, "<th{}>{}</th>", class(column), escaped(name));
    }
    html.push_str("</tr>");
    for row in rows {
        html.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(html, "<td{}>{}</td>", class(column), escaped(cell));
        }
        html.push_str("</tr>");
    }
    html.push_str("</table>");
    html
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::database::Statement;
    use super::super::gathering;
    use super::super::gathering::tests::evidence;
    use super::super::judging::Judged;
    use super::super::side_by_side::Way;
    use super::*;
    use server::trial::AtReceiver;

    fn full() -> Report {
        let mut report = gathering::report(evidence());
        report.destinations.push(Judged {
            destination: 4_711,
            period_seconds: 60,
            bound: Some(600),
            worst_at_sender: None,
            worst_at_receiver: 603,
            worst_in_whole_period: None,
            at_receiver: AtReceiver::default(),
            early_starts: 0,
            share_percent: None,
            arrivals: 1_234,
        });
        report.side_by_side.push(Way {
            name: "fixed <window>".to_owned(),
            promised: None,
            worst_at_sender: 88_888,
            worst_at_receiver: 99_999,
            last_start_seconds: 12.5,
        });
        report.statements.push(Statement {
            name: "select a < b && \"c\"".to_owned(),
            calls: 77_777,
            total_ms: 5.5,
            rows: 3,
            wal_bytes: 9,
        });
        report
    }

    /// Every tag that is opened is closed, in order, and no text has a bare
    /// `<` or `&`.
    pub(crate) fn is_well_formed(page: &str) -> Result<(), String> {
        let mut open: Vec<&str> = Vec::new();
        let body = page.strip_prefix("<!DOCTYPE html>").ok_or("no doctype")?;
        for (place, piece) in body.split('<').enumerate() {
            let (tag, text) = match (place, piece.split_once('>')) {
                (0, _) => (None, piece),
                (_, Some((tag, text))) => (Some(tag), text),
                (_, None) => return Err(format!("a tag has no end: {piece}")),
            };
            for after in text.split('&').skip(1) {
                let known = ["amp;", "lt;", "gt;", "quot;"];
                if !known.iter().any(|entity| after.starts_with(entity)) {
                    return Err(format!("a bare &: {after}"));
                }
            }
            let Some(tag) = tag else { continue };
            if tag.matches('"').count() % 2 == 1 {
                return Err(format!("an attribute has no end: {tag}"));
            }
            match tag.strip_prefix('/') {
                Some(name) if open.pop() == Some(name) => {}
                Some(name) => return Err(format!("{name} was not open")),
                None if tag.ends_with('/') => {}
                None => open.push(tag.split(' ').next().unwrap_or(tag)),
            }
        }
        if open.is_empty() {
            Ok(())
        } else {
            Err(format!("still open: {open:?}"))
        }
    }

    #[test]
    fn the_check_finds_what_is_not_well_formed() {
        let page = |body: &str| format!("<!DOCTYPE html><p>{body}</p>");
        assert!(is_well_formed(&page("a<br/>b &amp; c")).is_ok());
        for body in ["<b>", "</b>", "a & b", "a < b", "<b></i>", "<a x=\"></a>"] {
            assert!(is_well_formed(&page(body)).is_err(), "{body}");
        }
    }

    #[test]
    fn the_page_is_well_formed_and_needs_nothing_else() {
        let page = page(&full());
        is_well_formed(&page).unwrap();
        for fetched in [
            "<script", "<link", "<img", "src=", "href=", "url(", "@import",
        ] {
            assert!(!page.contains(fetched), "{fetched}");
        }
    }

    #[test]
    fn the_page_has_the_numbers() {
        let page = page(&full());
        let expected = [
            "4711 / 60 s",
            ">603<",
            "cpu_us_per_delivery.serve",
            "150,000",
            "serve: 150,000 (75 %)",
            "a &lt;note&gt; &amp; more",
            "select a &lt; b &amp;&amp; &quot;c&quot;",
            "77,777",
            "peak_rss_mib.client",
        ];
        for part in expected {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(page.matches("<svg").count(), 6);
    }

    #[test]
    fn a_report_of_nothing_is_a_page_too() {
        let mut report = gathering::report(evidence());
        report.seconds.clear();
        report.processes.clear();
        report.metrics.clear();
        is_well_formed(&page(&report)).unwrap();
    }
}
