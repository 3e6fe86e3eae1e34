//! Numbers of JSON, compared exactly: ids that no double holds are common.

use std::cmp::Ordering;

use serde_json::Number;

/// How the first compares with the second.
pub(super) fn compare(one: &Number, other: &Number) -> Option<Ordering> {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        (Some(whole), None) => Some(with_double(whole, other.as_f64()?)),
        (None, Some(whole)) => Some(with_double(whole, one.as_f64()?).reverse()),
        (None, None) => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

/// A whole number with a finite one, without making the first a double.
fn with_double(whole: i128, double: f64) -> Ordering {
    // Saturates, beyond every whole number of JSON.
    let floor = double.floor() as i128;
    let fraction = || match double > double.floor() {
        true => Ordering::Less,
        false => Ordering::Equal,
    };
    whole.cmp(&floor).then_with(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_and_fractions_compare_as_they_are() {
        let number = |text: &str| serde_json::from_str::<Number>(text).unwrap();
        let ascending = [
            "-1e300",
            "-9223372036854775808",
            "-2.5",
            "-2",
            "-0.5",
            "0",
            "0.5",
            "1",
            "1.5",
            "9007199254740992",
            "9007199254740993",
            "9007199254740994.0",
            "18446744073709551615",
            "1e20",
            "1e300",
        ];
        for (i, one) in ascending.iter().enumerate() {
            for (j, other) in ascending.iter().enumerate() {
                let order = compare(&number(one), &number(other));
                assert_eq!(order, Some(i.cmp(&j)), "{one} and {other}");
            }
        }
        for same in ["1", "1.0", "1e0", "10e-1"] {
            let order = compare(&number("1"), &number(same));
            assert_eq!(order, Some(Ordering::Equal), "{same}");
        }
    }
}
