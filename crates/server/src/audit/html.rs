//! A report as one page that needs nothing else: no script, no font, no picture
//! from elsewhere, and so a policy that refuses all of them.

use std::fmt::Write;

use super::chart::{Chart, Line, svg};
use super::render::{escape, label, margin};
use super::report::{
    CurveReport, DestinationReport, GroupReport, PointReport, Report, RuleReport, StretchReport,
};

/// So many destinations have charts: those with problems first.
pub const MAX_CHARTED: usize = 50;

const STYLE: &str = include_str!("style.css");

/// The page.
pub(super) fn html(report: &Report) -> String {
    let title = "Compliance";
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{title}</title><style>{STYLE}</style></head><body><main>\
         <h1>{title}</h1><p>{} to {}</p>",
        escape(&report.since),
        escape(&report.until)
    );
    let over = report
        .destinations
        .iter()
        .filter(|one| !one.compliant)
        .count();
    let short = (report.destinations.iter())
        .filter(|one| one.under_delivery.seconds > 0.0)
        .count();
    let groups_over = (report.limit_groups.iter())
        .filter(|one| !one.compliant)
        .count();
    let verdict = match over {
        0 if groups_over > 0 => format!(
            "<p class=\"bad\"><strong>Not compliant:</strong> {groups_over} limit groups were over \
             a limit"
        ),
        0 => {
            "<p class=\"good\"><strong>Compliant:</strong> no window was over its limit".to_owned()
        }
        _ => format!(
            "<p class=\"bad\"><strong>Not compliant:</strong> {over} of {} destinations were over \
             a limit",
            report.destinations.len()
        ),
    };
    let _ = write!(
        page,
        "{verdict}. {} destinations; {short} of them got less than their limits allowed for a \
         time.</p>",
        report.destinations.len()
    );
    table(&mut page, &report.destinations);
    if !report.limit_groups.is_empty() {
        groups(&mut page, &report.limit_groups);
    }
    let mut detailed: Vec<&DestinationReport> = report.destinations.iter().collect();
    detailed.sort_by(|a, b| {
        let worst = |one: &DestinationReport| (one.compliant, one.under_delivery.seconds <= 0.0);
        worst(a).cmp(&worst(b)).then(b.starts.cmp(&a.starts))
    });
    for destination in detailed.into_iter().take(MAX_CHARTED) {
        section(&mut page, destination, report);
    }
    page.push_str("</main></body></html>\n");
    page
}

fn table(page: &mut String, destinations: &[DestinationReport]) {
    page.push_str(
        "<div class=\"scroll\"><table><caption>All destinations</caption><thead><tr>\
         <th scope=\"col\">Destination</th><th scope=\"col\">Limit</th>\
         <th scope=\"col\">Starts</th><th scope=\"col\">Of possible</th>\
         <th scope=\"col\">Window</th><th scope=\"col\">Aligned</th>\
         <th scope=\"col\">Sliding</th><th scope=\"col\">Bound</th><th scope=\"col\">Margin</th>\
         <th scope=\"col\">Over</th><th scope=\"col\">Short for</th></tr></thead><tbody>",
    );
    for one in destinations {
        let column = columns(&one.rules);
        let _ = write!(
            page,
            "<tr class=\"{}\"><th scope=\"row\">{}</th><td>{}</td><td>{}</td>\
             <td>{}% of {}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td></tr>",
            if one.compliant { "kept" } else { "over" },
            escape(label(one)),
            escape(&one.limit_words()),
            one.starts,
            one.share.percent,
            one.share.allowed,
            column(0),
            column(1),
            column(2),
            column(3),
            column(4),
            column(5),
            short_for(one),
        );
    }
    page.push_str("</tbody></table></div>");
}

/// How rules were kept, line by line: a column of the table by its number.
fn columns(rules: &[RuleReport]) -> impl Fn(usize) -> String {
    let rules = rules.iter().map(|rule| {
        let starts = |window: Option<u64>| window.map_or(String::new(), |it| it.to_string());
        [
            rule.rule.to_owned(),
            starts(rule.largest_aligned.as_ref().map(|window| window.starts)),
            starts(rule.largest_sliding.as_ref().map(|window| window.starts)),
            starts(rule.bound),
            margin(rule),
            rule.early_starts.to_string(),
        ]
    });
    let rules: Vec<[String; 6]> = rules.collect();
    move |number: usize| {
        let cells = rules.iter().map(|rule| escape(&rule[number]));
        cells.collect::<Vec<_>>().join("<br>")
    }
}

fn groups(page: &mut String, groups: &[GroupReport]) {
    page.push_str(
        "<div class=\"scroll\"><table><caption>All limit groups</caption><thead><tr>\
         <th scope=\"col\">Group</th><th scope=\"col\">Limit</th><th scope=\"col\">Starts</th>\
         <th scope=\"col\">Window</th><th scope=\"col\">Aligned</th>\
         <th scope=\"col\">Sliding</th><th scope=\"col\">Bound</th>\
         <th scope=\"col\">Over</th></tr></thead><tbody>",
    );
    for one in groups {
        let column = columns(&one.rules);
        let _ = write!(
            page,
            "<tr class=\"{}\"><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            if one.compliant { "kept" } else { "over" },
            escape(&one.name),
            escape(&one.limit_in_force),
            one.starts,
            column(0),
            column(1),
            column(2),
            column(3),
            column(5),
        );
    }
    page.push_str("</tbody></table></div>");
}

fn short_for(one: &DestinationReport) -> String {
    match one.under_delivery.seconds {
        seconds if seconds > 0.0 => format!("{seconds} s"),
        _ => String::new(),
    }
}

fn section(page: &mut String, one: &DestinationReport, report: &Report) {
    let _ = write!(
        page,
        "<section><h2>{}</h2><p class=\"id\">{}</p><p>{}</p>",
        escape(label(one)),
        escape(&one.id),
        escape(&limits(one))
    );
    if let Some(curve) = &one.curve {
        charts(page, curve, report);
    }
    list(page, "Over its limit", over(one));
    let short = one.under_delivery.stretches.iter().map(stretch);
    list(page, "Less than its limit allowed", short.collect());
    page.push_str("</section>");
}

/// What was in force from when on.
fn limits(one: &DestinationReport) -> String {
    let entries = one
        .limits
        .iter()
        .map(|entry| format!("{} from {}", entry.limit, entry.in_force_from));
    format!("In force: {}", entries.collect::<Vec<_>>().join("; "))
}

fn charts(page: &mut String, curve: &CurveReport, report: &Report) {
    let from = curve.points.first().map_or("", |point| point.at.as_str());
    let values = |of: fn(&PointReport) -> Option<f64>| curve.points.iter().map(of).collect();
    let line = |name, class, steps, values| Line {
        name,
        class,
        values,
        steps,
    };
    let chart = |title: &str, unit, lines| {
        svg(&Chart {
            title: title.to_owned(),
            unit,
            from,
            until: &report.until,
            lines,
        })
    };
    page.push_str(&chart(
        "Starts against the limit",
        "starts per second",
        vec![
            line(
                "starts",
                "starts",
                false,
                values(|one| Some(one.starts_per_second)),
            ),
            line("limit", "limit", true, values(|one| one.limit_per_second)),
        ],
    ));
    page.push_str(&chart(
        "Latency",
        "seconds",
        vec![
            line("p50", "p50", false, values(|one| one.latency_p50_seconds)),
            line("p99", "p99", false, values(|one| one.latency_p99_seconds)),
        ],
    ));
    page.push_str(&chart(
        "Backlog",
        "attempts",
        vec![line(
            "backlog",
            "backlog",
            false,
            values(|one| Some(one.backlog as f64)),
        )],
    ));
}

fn over(one: &DestinationReport) -> Vec<String> {
    let of_rule = one.rules.iter().flat_map(|rule| {
        rule.violations.iter().map(|violation| {
            let ids: Vec<String> = violation.attempts.iter().map(i64::to_string).collect();
            format!(
                "{}: {} starts where {} were allowed, until {}; attempts {}",
                rule.rule,
                violation.starts,
                violation.bound,
                violation.ends_at,
                ids.join(" ")
            )
        })
    });
    of_rule.collect()
}

/// One time of under-delivery, in words.
pub(super) fn stretch(one: &StretchReport) -> String {
    let allowed = match one.allowed {
        Some(allowed) => format!("{} starts where {allowed} were allowed", one.starts),
        None => format!("{} starts", one.starts),
    };
    format!(
        "{} to {}: {allowed}, up to {} waited ({})",
        one.from, one.until, one.backlog, one.reason
    )
}

fn list(page: &mut String, title: &str, items: Vec<String>) {
    if items.is_empty() {
        return;
    }
    let _ = write!(page, "<h3>{}</h3><ul>", escape(title));
    for item in items {
        let _ = write!(page, "<li>{}</li>", escape(&item));
    }
    page.push_str("</ul>");
}

#[cfg(test)]
mod tests {
    use super::super::Span;
    use super::super::report::CurveReport;
    use super::super::report::{LimitReport, ShareReport, UnderDeliveryReport, ViolationReport};
    use super::*;
    use domain::time::Timestamp;

    fn destination(name: &str, over: bool) -> DestinationReport {
        let violation = ViolationReport {
            ends_at: "2026-01-01T00:00:01Z".to_owned(),
            starts: 4,
            bound: 2,
            attempts: vec![7, 8],
        };
        let point = PointReport {
            at: "2026-01-01T00:00:00Z".to_owned(),
            starts_per_second: 2.0,
            limit_per_second: Some(2.0),
            due: 3,
            backlog: 1,
            refused: 0,
            latency_p50_seconds: Some(0.1),
            latency_p99_seconds: None,
        };
        DestinationReport {
            id: "0192f3c4".to_owned(),
            name: name.to_owned(),
            judged_since: None,
            limit_in_force: "2/second".to_owned(),
            limits: vec![LimitReport {
                in_force_from: "2026-01-01T00:00:00Z".to_owned(),
                limit: "2/second".to_owned(),
            }],
            compliant: !over,
            starts: 2,
            share: ShareReport {
                started: 2,
                allowed: 2,
                percent: 100,
            },
            rules: vec![RuleReport {
                rule: "second",
                largest_aligned: None,
                largest_sliding: None,
                bound: Some(2),
                margin_seconds: None,
                early_starts: u64::from(over),
                violations: over.then_some(violation).into_iter().collect(),
            }],
            under_delivery: UnderDeliveryReport {
                seconds: 0.0,
                stretches: Vec::new(),
            },
            smart_delivery: Vec::new(),
            curve: Some(CurveReport {
                step_seconds: 1,
                points: vec![point.clone(), point],
            }),
        }
    }

    fn page(destinations: Vec<DestinationReport>) -> String {
        let span = Span {
            since: Timestamp::from_millis(0),
            until: Timestamp::from_millis(2_000),
        };
        html(&Report::new(span, destinations))
    }

    #[test]
    fn it_needs_nothing_else_and_names_are_text() {
        let page = page(vec![destination("<script>\"&'", false)]);
        for forbidden in [
            "<script", "http:", "https:", "url(", "@import", " src=", "href=",
        ] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(page.contains("&lt;script&gt;&quot;&amp;&#39;"));
        assert!(page.contains("default-src 'none'"));
        assert_eq!(page.matches("<svg").count(), 3);
        assert_eq!(
            page.matches("<figure>").count(),
            page.matches("</figure>").count()
        );
        assert!(page.contains("prefers-color-scheme: dark"));
    }

    /// The fullest window is of the limit before: by itself it would look broken.
    #[test]
    fn a_limit_that_was_changed_is_shown_with_the_one_before() {
        let mut one = destination("shop", false);
        one.limits.insert(
            0,
            LimitReport {
                in_force_from: "2026-01-01T00:00:00Z".to_owned(),
                limit: "50/second".to_owned(),
            },
        );
        assert_eq!(one.limit_words(), "2/second, before 50/second");
        one.limits.insert(0, one.limits[0].clone());
        assert_eq!(one.limit_words(), "2/second, before 50/second and 1 more");
        assert!(page(vec![one]).contains("<td>2/second, before 50/second and 1 more</td>"));
        assert_eq!(destination("kept", false).limit_words(), "2/second");
    }

    #[test]
    fn what_is_over_comes_first_with_its_attempts() {
        let page = page(vec![
            destination("kept", false),
            destination("broken", true),
        ]);
        let section = |name: &str| page.find(&format!("<h2>{name}</h2>")).unwrap();
        assert!(section("broken") < section("kept"));
        assert!(page.contains("4 starts where 2 were allowed"));
        assert!(page.contains("attempts 7 8"));
        assert!(page.contains("Not compliant:</strong> 1 of 2"));
    }
}
