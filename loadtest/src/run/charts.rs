//! Charts as inline SVG, drawn by plain code: no script, nothing fetched.
//!
//! Colours are classes `c0` to `c9`, which the page's style sheet gives.

use std::fmt::Write;

use super::report::number;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 15.0;

/// How many colours there are.
const COLOURS: usize = 10;

/// One line of a line chart, a value for each second.
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) values: Vec<f64>,
}

/// One row of a bar chart.
pub(crate) struct Bars {
    pub(crate) name: String,
    /// Of each series, if there is one.
    pub(crate) values: Vec<Option<f64>>,
    /// Where a mark stands.
    pub(crate) mark: Option<f64>,
}

/// Text that may stand anywhere in a page.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, letter| {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML knows no others of these, even escaped.
            '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
        escaped
    })
}

/// Lines over seconds, with a grid and a legend.
pub(crate) fn lines(lines: &[Line<'_>]) -> String {
    const TOP: f64 = 30.0;
    const HEIGHT: f64 = 180.0;
    let most = lines.iter().flat_map(|line| line.values.iter().copied());
    let step = step(most.fold(0.0, f64::max));
    let most = lines.iter().flat_map(|line| line.values.iter().copied());
    let top = (most.fold(step, f64::max) / step).ceil() * step;
    let seconds = lines
        .iter()
        .map(|line| line.values.len())
        .max()
        .unwrap_or(0);
    let x =
        |second: usize| LEFT + (WIDTH - LEFT - RIGHT) * share(second as f64, seconds as f64 - 1.0);
    let y = |value: f64| TOP + HEIGHT * (1.0 - share(value, top));
    let mut svg = legend(lines.iter().map(|line| line.name));
    let mut grid = 0.0;
    while grid <= top {
        let (at, text) = (y(grid), number(grid));
        rule(&mut svg, at);
        label(&mut svg, (LEFT - 8.0, at + 4.0), "end", &text);
        grid += step;
    }
    let every = (seconds / 10).max(1);
    for second in (0..seconds).step_by(every) {
        let text = format!("{second} s");
        label(&mut svg, (x(second), TOP + HEIGHT + 18.0), "middle", &text);
    }
    for (colour, line) in lines.iter().enumerate() {
        let points = line.values.iter().enumerate();
        let points = points.map(|(second, value)| format!("{:.1},{:.1}", x(second), y(*value)));
        let points: Vec<_> = points.collect();
        let points = points.join(" ");
        let _ = write!(
            svg,
            r#"<polyline class="line c{}" points="{points}"/>"#,
            colour % COLOURS
        );
    }
    framed(TOP + HEIGHT + 28.0, &svg)
}

/// Bars of several series for each row, and marks that they should not cross.
pub(crate) fn bars(series: &[&str], mark: &str, rows: &[Bars]) -> String {
    const TOP: f64 = 30.0;
    const BAR: f64 = 13.0;
    const GAP: f64 = 8.0;
    let values = || {
        let of = |row: &Bars| {
            row.values
                .iter()
                .copied()
                .chain([row.mark])
                .flatten()
                .collect::<Vec<_>>()
        };
        rows.iter().flat_map(of)
    };
    let most = values().fold(f64::MIN_POSITIVE, f64::max);
    let width = |value: f64| (WIDTH - LEFT - RIGHT - 60.0) * share(value, most);
    let mut svg = legend(
        series
            .iter()
            .copied()
            .chain([mark].into_iter().filter(|mark| !mark.is_empty())),
    );
    let mut y = TOP;
    for row in rows {
        let height = BAR * series.len() as f64;
        let middle = y + height / 2.0 + 4.0;
        label(&mut svg, (LEFT - 8.0, middle), "end", &row.name);
        for (colour, value) in row.values.iter().enumerate() {
            let at = y + BAR * colour as f64;
            let Some(value) = value else { continue };
            let colour = colour % COLOURS;
            let wide = width(*value);
            let _ = write!(
                svg,
                r#"<rect class="bar c{colour}" x="{LEFT}" y="{at:.1}" width="{wide:.1}" height="{:.1}"/>"#,
                BAR - 1.0
            );
            label(
                &mut svg,
                (LEFT + wide + 5.0, at + 10.0),
                "start",
                &number(*value),
            );
        }
        if let Some(mark) = row.mark {
            let (x, colour) = (LEFT + width(mark), series.len() % COLOURS);
            let _ = write!(
                svg,
                r#"<line class="mark c{colour}" x1="{x:.1}" x2="{x:.1}" y1="{:.1}" y2="{:.1}"/>"#,
                y - 2.0,
                y + height + 2.0
            );
        }
        y += height + GAP;
    }
    framed(y + 4.0, &svg)
}

/// One bar of parts, with their names, values and shares beneath.
pub(crate) fn stacked(parts: &[(String, f64)]) -> String {
    let total: f64 = parts.iter().map(|(_, value)| value).sum();
    let (mut svg, mut x) = (String::new(), 15.0);
    for (colour, (name, value)) in parts.iter().enumerate() {
        let colour = colour % COLOURS;
        let wide = (WIDTH - 30.0) * share(*value, total);
        let _ = write!(
            svg,
            r#"<rect class="bar c{colour}" x="{x:.1}" y="10" width="{wide:.1}" height="34"/>"#
        );
        x += wide;
        let (column, row) = (colour % 3, colour / 3);
        let (at_x, at_y) = (15.0 + 245.0 * column as f64, 68.0 + 20.0 * row as f64);
        swatch(&mut svg, (at_x, at_y), colour);
        let percent = 100.0 * share(*value, total);
        let text = format!("{name}: {} ({percent:.0} %)", number(*value));
        label(&mut svg, (at_x + 16.0, at_y), "start", &text);
    }
    framed(78.0 + 20.0 * parts.len().div_ceil(3) as f64, &svg)
}

fn framed(height: f64, content: &str) -> String {
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" role="img">{content}</svg>"#
    )
}

/// Part of a whole, within it; of nothing, nothing.
fn share(part: f64, whole: f64) -> f64 {
    if whole <= 0.0 {
        return 0.0;
    }
    (part / whole).clamp(0.0, 1.0)
}

/// A round distance between the lines of a grid, of which there are about four.
fn step(most: f64) -> f64 {
    let rough = (most / 4.0).max(1e-3);
    let power = 10_f64.powf(rough.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    factors
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(power * 10.0)
}

fn legend<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let (mut svg, mut x) = (String::new(), LEFT);
    for (colour, name) in names.enumerate() {
        swatch(&mut svg, (x, 16.0), colour % COLOURS);
        label(&mut svg, (x + 16.0, 16.0), "start", name);
        x += 40.0 + 7.0 * name.chars().count() as f64;
    }
    svg
}

fn swatch(svg: &mut String, (x, y): (f64, f64), colour: usize) {
    let y = y - 10.0;
    let _ = write!(
        svg,
        r#"<rect class="bar c{colour}" x="{x:.1}" y="{y:.1}" width="11" height="11"/>"#
    );
}

fn label(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let text = escaped(text);
    let _ = write!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
    );
}

fn rule(svg: &mut String, y: f64) {
    let right = WIDTH - RIGHT;
    let _ = write!(
        svg,
        r#"<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1}" y2="{y:.1}"/>"#
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_has_round_steps() {
        let steps = [0.0, 3.0, 100.0, 15_000.0, 21_000.0].map(step);
        for (step, expected) in steps.into_iter().zip([0.001, 1.0, 50.0, 5_000.0, 10_000.0]) {
            assert!(
                (step - expected).abs() < expected / 1e6,
                "{step} {expected}"
            );
        }
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a<b>&\"\u{1}"), "a&lt;b&gt;&amp;&quot;\u{fffd}");
    }

    #[test]
    fn a_line_has_a_point_for_each_value_within_the_chart() {
        let svg = lines(&[Line {
            name: "offered",
            values: vec![0.0, 100.0, 50.0],
        }]);
        assert!(
            svg.contains(r#"points="70.0,210.0 407.5,30.0 745.0,120.0""#),
            "{svg}"
        );
        assert!(svg.contains(">offered</text>"));
        assert!(lines(&[]).starts_with("<svg"), "nothing is no error");
    }

    #[test]
    fn bars_are_in_proportion_and_marks_stand_at_their_place() {
        let row = Bars {
            name: "7".to_owned(),
            values: vec![None, Some(20.0)],
            mark: Some(10.0),
        };
        let svg = bars(&["sender", "receiver"], "limit", &[row]);
        assert!(svg.contains(r#"width="615.0""#), "the longest: {svg}");
        assert!(svg.contains(r#"x1="377.5""#), "half-way: {svg}");
    }

    #[test]
    fn a_stack_says_each_part_and_its_share() {
        let svg = stacked(&[("worker".to_owned(), 30.0), ("api".to_owned(), 10.0)]);
        assert!(svg.contains("worker: 30 (75 %)") && svg.contains("api: 10 (25 %)"));
        assert!(stacked(&[]).starts_with("<svg"));
    }
}
