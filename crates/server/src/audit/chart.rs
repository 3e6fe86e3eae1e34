//! Charts as inline SVG: lines over time, without a script.

use std::fmt::Write;

use super::render::escape;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 150.0;

/// Room for the numbers beside it.
const LEFT: f64 = 56.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 18.0;

/// One line: a name, its class in the style sheet, and its values; where one is
/// not there the line breaks.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) class: &'static str,
    pub(super) values: Vec<Option<f64>>,
    /// It holds until the next value, and does not slope to it.
    pub(super) steps: bool,
}

/// What a chart is of.
pub(super) struct Chart<'a> {
    pub(super) title: String,
    /// What the numbers are, such as `starts per second`.
    pub(super) unit: &'static str,
    pub(super) from: &'a str,
    pub(super) until: &'a str,
    pub(super) lines: Vec<Line>,
}

/// The chart as an element, with its legend.
pub(super) fn svg(chart: &Chart<'_>) -> String {
    let values = chart.lines.iter().flat_map(|line| &line.values);
    let most = values.flatten().copied().fold(0.0, f64::max);
    let top = nice(most);
    let mut text = format!(
        "<figure><figcaption>{} <span class=\"unit\">{}</span>",
        escape(&chart.title),
        escape(chart.unit)
    );
    for line in &chart.lines {
        let _ = write!(
            text,
            " <span class=\"key {}\">{}</span>",
            line.class,
            escape(line.name)
        );
    }
    let _ = write!(
        text,
        "</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}: at most \
         {most} {}\">",
        escape(&chart.title),
        escape(chart.unit)
    );
    for part in [0.0, 0.5, 1.0] {
        let y = y(part * top, top);
        let _ = write!(
            text,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            number(part * top)
        );
    }
    for line in &chart.lines {
        let _ = write!(
            text,
            "<path class=\"{}\" d=\"{}\"/>",
            line.class,
            path(line, top)
        );
    }
    let base = HEIGHT - 4.0;
    let _ = write!(
        text,
        "<text x=\"{LEFT}\" y=\"{base}\">{}</text>\
         <text x=\"{WIDTH}\" y=\"{base}\" text-anchor=\"end\">{}</text></svg></figure>",
        escape(chart.from),
        escape(chart.until)
    );
    text
}

fn path(line: &Line, top: f64) -> String {
    let last = line.values.len().max(2) - 1;
    let mut path = String::new();
    let mut drawing = false;
    for (number, value) in line.values.iter().enumerate() {
        let Some(value) = value else {
            drawing = false;
            continue;
        };
        let x = LEFT + (WIDTH - LEFT) * number as f64 / last as f64;
        let y = y(*value, top);
        let _ = match (drawing, line.steps) {
            (false, _) => write!(path, "M{x:.1} {y:.1}"),
            (true, true) => write!(path, "H{x:.1}V{y:.1}"),
            (true, false) => write!(path, "L{x:.1} {y:.1}"),
        };
        // A single value is a dot.
        if !drawing {
            path.push_str("h0.1");
        }
        drawing = true;
    }
    path
}

fn y(value: f64, top: f64) -> f64 {
    TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value / top)
}

/// The next of 1, 2, 5, 10, 20 … above.
fn nice(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let magnitude = 10_f64.powf(most.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let fits = |step: &f64| step * magnitude >= most * 1.02;
    magnitude * steps.into_iter().find(fits).unwrap_or(20.0)
}

fn number(value: f64) -> String {
    let rounded = (value * 1_000.0).round() / 1_000.0;
    match value {
        1_000_000.0.. => format!("{}M", rounded / 1_000_000.0),
        1_000.0.. => format!("{}k", rounded / 1_000.0),
        _ => rounded.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_round_and_above_all_values() {
        assert_eq!(nice(0.0), 1.0);
        assert_eq!(nice(9.0), 10.0);
        assert_eq!(nice(10.0), 20.0);
        assert_eq!(nice(431.0), 500.0);
        assert_eq!(number(2_500.0), "2.5k");
    }

    #[test]
    fn a_line_breaks_where_a_value_is_missing() {
        let line = Line {
            name: "starts",
            class: "starts",
            values: vec![Some(0.0), Some(1.0), None, Some(1.0)],
            steps: false,
        };
        let path = path(&line, 1.0);
        assert_eq!(path.matches('M').count(), 2, "{path}");
        assert_eq!(path.matches('L').count(), 1, "{path}");
    }
}
