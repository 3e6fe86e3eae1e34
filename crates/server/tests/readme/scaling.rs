//! The machines on the page of scaling follow from the costs that stand there.

const PAGE: &str = include_str!("../../../../docs/scaling.md");

const DAY: f64 = 86_400.0;

/// Of the average, where no limit is the peak.
const PEAK: f64 = 3.0;

/// Each part is to be half busy.
const SPARE: f64 = 2.0;

const KEPT_DAYS: f64 = 7.0;

/// The cells of a table's rows, after the row that begins so.
fn rows(head: &str) -> Vec<Vec<String>> {
    let (_, table) = PAGE.split_once(head).unwrap_or_else(|| panic!("{head}"));
    let lines = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim_matches('|');
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    lines.map(cells).collect()
}

fn number(text: &str) -> f64 {
    text.replace(',', "").parse().unwrap()
}

/// With as many digits as are worth something.
fn shown(cores: f64) -> String {
    match cores >= 10.0 {
        true => format!("{cores:.1}"),
        false => format!("{cores:.2}"),
    }
}

fn in_thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    match digits.len() {
        0..=3 => digits,
        long => format!("{},{}", &digits[..long - 3], &digits[long - 3..]),
    }
}

#[test]
fn machines_are_what_the_costs_come_to() {
    let costs = rows("| part | µs | scales by |");
    let (all, parts) = costs.split_last().unwrap();
    let micros = |cells: &[String]| number(&cells[1]);
    let sum: f64 = parts.iter().map(|cells| micros(cells)).sum();
    assert_eq!(micros(all), sum, "all of it");
    let beside = rows("| beside the processor | for each delivery |");
    let [log, payload] = [&beside[0], &beside[1]].map(|cells| micros(cells));

    // 15 million and a billion a day; a million a minute, whose limits are the peak.
    let average = [15e6 / DAY, 1e9 / DAY, 1e6 / 60.0];
    let peak = [average[0] * PEAK, average[1] * PEAK, average[2]];
    let of = |rates: [f64; 3], text: &dyn Fn(f64) -> String| rates.map(text).to_vec();
    let mut expected = vec![of(average, &in_thousands), of(peak, &in_thousands)];
    for cells in &costs {
        let cores = |rate: f64| shown(rate * micros(cells) / 1e6 * SPARE);
        expected.push(of(peak, &cores));
    }
    expected.push(of(peak, &|rate| format!("{:.1}", rate * log / 1e6)));
    expected.push(of(average, &|rate| {
        format!("{:.2}", rate * DAY * log / 1e12)
    }));
    let kept = |rate: f64| format!("{:.2}", rate * DAY * KEPT_DAYS * payload / 1e12);
    expected.push(of(average, &kept));

    let machines = rows("| | 15 million a day |");
    let written: Vec<_> = machines.iter().map(|cells| cells[1..].to_vec()).collect();
    assert_eq!(written, expected, "docs/scaling.md: the table of machines");
}
