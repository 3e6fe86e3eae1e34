//! A colour, and what can be read on it: contrast as WCAG 2 measures it.

use std::fmt;
use std::str::FromStr;

/// What text needs at least, by level AA.
const READABLE: f64 = 4.5;

/// How far the wash of notices is from the page to the accent, at most.
const WASH: f64 = 0.14;

/// The page and the panels on it, as `assets/style.css` has them.
const LIGHT: [Colour; 2] = [Colour([0xfc, 0xfc, 0xfa]), WHITE];
const DARK: [Colour; 2] = [Colour([0x12, 0x16, 0x15]), Colour([0x1a, 0x1f, 0x1e])];

const WHITE: Colour = Colour([0xff, 0xff, 0xff]);
const BLACK: Colour = Colour([0, 0, 0]);

/// A colour of the screen: red, green and blue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour([u8; 3]);

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.0;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

impl FromStr for Colour {
    type Err = String;
    /// `#0a7c66`, or `#0a7`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "must be a colour of CSS in hex, such as #0a7c66".to_owned();
        let digits = text.strip_prefix('#').ok_or_else(wrong)?;
        let digits = digits.chars().map(|digit| digit.to_digit(16));
        let digits: Option<Vec<u32>> = digits.collect();
        let digits = digits.ok_or_else(wrong)?;
        let pairs = match digits[..] {
            [red, green, blue] => [[red; 2], [green; 2], [blue; 2]],
            [a, b, c, d, e, f] => [[a, b], [c, d], [e, f]],
            _ => return Err(wrong()),
        };
        let byte = |[high, low]: [u32; 2]| u8::try_from(high * 16 + low).unwrap_or(u8::MAX);
        Ok(Self(pairs.map(byte)))
    }
}

impl Colour {
    /// The style of a portal in this colour: buttons have it as it is; links, lines and
    /// marks have it as dark or light as they need to be read, by day and by night.
    #[must_use]
    pub fn style(self) -> String {
        let theme = |grounds, wash| {
            let accent = self.readable_on(grounds);
            let ink = accent.text_on();
            format!("--accent: {accent}; --accent-ink: {ink}; --wash: {accent}{wash};")
        };
        let ink = self.text_on();
        format!(
            ":root {{ --fill: {self}; --fill-ink: {ink}; {} }}\n\
             @media (prefers-color-scheme: dark) {{ :root {{ {} }} }}\n",
            theme(LIGHT, "18"),
            theme(DARK, "22"),
        )
    }

    /// Black or white, whichever is read better: one of them always is, at 4.58 or more.
    fn text_on(self) -> Self {
        match self.contrast(BLACK) >= self.contrast(WHITE) {
            true => BLACK,
            false => WHITE,
        }
    }

    /// As near to this as can be read on all of these, also where they are washed in it.
    fn readable_on(self, grounds: [Self; 2]) -> Self {
        let end = grounds[0].text_on();
        let steps = (0..=20).map(|step| self.mixed(end, f64::from(step) / 20.0));
        let is_read = |colour: &Self| {
            let washed = grounds.map(|ground| ground.mixed(*colour, WASH));
            let mut all = grounds.into_iter().chain(washed);
            all.all(|ground| colour.contrast(ground) >= READABLE)
        };
        steps.into_iter().find(is_read).unwrap_or(end)
    }

    /// So much of the way to the other one.
    fn mixed(self, other: Self, part: f64) -> Self {
        let mut mixed = self;
        for (from, to) in mixed.0.iter_mut().zip(other.0) {
            let between = f64::from(*from) + (f64::from(to) - f64::from(*from)) * part;
            *from = between.round().clamp(0.0, 255.0) as u8;
        }
        mixed
    }

    fn contrast(self, other: Self) -> f64 {
        let (one, other) = (self.luminance(), other.luminance());
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    fn luminance(self) -> f64 {
        let [red, green, blue] = self.0.map(|channel| {
            let channel = f64::from(channel) / 255.0;
            match channel <= 0.04045 {
                true => channel / 12.92,
                false => ((channel + 0.055) / 1.055).powf(2.4),
            }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn colour(text: &str) -> Colour {
        text.parse().unwrap()
    }

    #[test]
    fn a_colour_is_hex_and_nothing_else() {
        assert_eq!(colour("#0A7c66").to_string(), "#0a7c66");
        assert_eq!(colour("#0a7"), colour("#00aa77"));
        for wrong in [
            "",
            "0a7c66",
            "#0a7c6",
            "#0a7c66ff",
            "#0a7c6g",
            "red",
            "#+a7c66",
        ] {
            let said = wrong.parse::<Colour>().unwrap_err();
            assert!(said.contains("#0a7c66"), "{wrong}: {said}");
        }
    }

    #[test]
    fn contrast_is_that_of_wcag() {
        assert!((BLACK.contrast(WHITE) - 21.0).abs() < 1e-9);
        let found = colour("#767676").contrast(WHITE);
        assert!((found - 4.54).abs() < 0.01, "{found}");
    }

    #[test]
    fn a_colour_that_is_read_stays_and_one_that_is_not_is_changed() {
        let ours = colour("#0a6b58");
        assert_eq!(ours.readable_on(LIGHT), ours);
        let yellow = colour("#ffd400");
        assert_ne!(yellow.readable_on(LIGHT), yellow);
        assert_eq!(yellow.readable_on(DARK), yellow);
        let style = yellow.style();
        assert!(
            style.contains("--fill: #ffd400; --fill-ink: #000000;"),
            "{style}"
        );
    }

    /// Whatever colour somebody likes: one in 17 of each channel.
    #[test]
    fn text_in_a_colour_and_on_it_is_read() {
        let channel = || (0..=255_u8).step_by(17);
        let all = channel().flat_map(|red| {
            channel().flat_map(move |green| channel().map(move |blue| Colour([red, green, blue])))
        });
        for one in all {
            assert!(one.contrast(one.text_on()) >= READABLE, "on {one}");
            for grounds in [LIGHT, DARK] {
                let text = one.readable_on(grounds);
                assert!(text.contrast(text.text_on()) >= READABLE, "on {text}");
                for ground in grounds {
                    let washed = ground.mixed(text, f64::from(0x22) / 255.0);
                    let worst = text.contrast(ground).min(text.contrast(washed));
                    assert!(worst >= READABLE, "{text}, of {one}, on {ground}: {worst}");
                }
            }
        }
    }
}
