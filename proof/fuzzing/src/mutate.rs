//! From inputs to another one that is nearly right: what is all wrong is
//! refused by the first check, and tests nothing else.

use rand::rngs::StdRng;
use rand::{Rng, RngExt};

/// The largest input. Caps that are larger are reached by a target's own means.
const MAX_INPUT_BYTES: usize = 16 * 1024;

/// The most changes to one input.
const MAX_CHANGES: usize = 6;

/// Bytes that mean something to a parser, or that it forgets about.
const BYTES: &[u8] = b"\0\t\r\n \"'\\/@:#?%[]{}(),.;=&+-*_<>|^`~$!0179aAefFxXzZ\x0b\x0c\x1b\x7f\x80\xa0\xbf\xc0\xc3\xed\xf0\xff";

/// Pieces that have hurt other parsers.
const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"\n\n",
    b"%00",
    b"%2e",
    b"%2F",
    b"%40",
    b"%0d%0a",
    b"%",
    b"..",
    b"//",
    b"://",
    b"\\\\",
    b"\\u0000",
    b"\\ud800",
    b"\\udc00",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"\"\"",
    b"\xef\xbb\xbf",         // byte order mark
    b"\xc0\xaf",             // overlong slash
    b"\xed\xa0\x80",         // surrogate
    b"\xf4\x90\x80\x80",     // past the last code point
    "\u{00ad}".as_bytes(),   // soft hyphen: IDNA drops it
    "\u{3002}".as_bytes(),   // ideographic full stop: IDNA's dot
    "\u{ff0f}".as_bytes(),   // fullwidth solidus
    "\u{ff10}".as_bytes(),   // fullwidth zero
    "\u{00df}".as_bytes(),   // sharp s: two letters for some
    "\u{202e}".as_bytes(),   // right-to-left override
    "\u{2028}".as_bytes(),   // line separator
    "\u{0085}".as_bytes(),   // next line: a control character, and white space
    "\u{10ffff}".as_bytes(), // the last code point
];

/// Numbers at the edges of types and of limits.
const NUMBERS: &[&[u8]] = &[
    b"0",
    b"-0",
    b"-1",
    b"1",
    b"00",
    b"0x7f",
    b"0177",
    b"127",
    b"128",
    b"255",
    b"256",
    b"999",
    b"65535",
    b"65536",
    b"2147483648",
    b"4294967295",
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"99999999999999999999999999",
    b"1.5",
    b"1e3",
    b"1e308",
    b"1e999",
    b"-1e-999",
    b"ffffffffffffffff",
    b"NaN",
];

/// One of `inputs`, changed in a few places.
pub(crate) fn mutated(inputs: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
    let mut bytes = pick(inputs, random).clone();
    for _ in 0..random.random_range(1..=MAX_CHANGES) {
        change(&mut bytes, inputs, random);
    }
    bytes.truncate(MAX_INPUT_BYTES);
    bytes
}

fn change(bytes: &mut Vec<u8>, inputs: &[Vec<u8>], random: &mut StdRng) {
    match random.random_range(0..12) {
        0 => flip(bytes, random),
        1 => {
            if let Some(at) = place(bytes, random) {
                bytes[at] = *pick(BYTES, random);
            }
        }
        2 => insert(bytes, &[*pick(BYTES, random)], random),
        3 => repeat(bytes, random),
        4 | 5 => insert(bytes, pick::<&[u8]>(PIECES, random), random),
        6 => number(bytes, random),
        7 | 8 => drop(bytes.drain(range(bytes, random))),
        9 => {
            let piece = bytes[range(bytes, random)].to_vec();
            insert(bytes, &piece, random);
        }
        10 => {
            let other = pick(inputs, random);
            insert(bytes, &other[range(other, random)], random);
        }
        _ => {
            // The beginning of this and the end of another.
            let other = pick(inputs, random);
            bytes.truncate(random.random_range(0..=bytes.len()));
            bytes.extend_from_slice(&other[random.random_range(0..=other.len())..]);
        }
    }
}

fn flip(bytes: &mut [u8], random: &mut StdRng) {
    if let Some(at) = place(bytes, random) {
        bytes[at] ^= 1 << random.random_range(0..8);
    }
}

/// A piece many times over: lengths, depths and counts have limits.
fn repeat(bytes: &mut Vec<u8>, random: &mut StdRng) {
    let short = range(bytes, random);
    let piece = bytes[short.start..short.end.min(short.start + 8)].to_vec();
    let times = 1 << random.random_range(1..=12);
    insert(bytes, &piece.repeat(times), random);
}

/// Another number in the place of one that is there, or anywhere.
fn number(bytes: &mut Vec<u8>, random: &mut StdRng) {
    let number = pick::<&[u8]>(NUMBERS, random);
    let Some(from) = place(bytes, random) else {
        return bytes.extend_from_slice(number);
    };
    let digit = |at: &usize| bytes[*at].is_ascii_digit();
    let start = (from..bytes.len()).find(digit).unwrap_or(from);
    let length = (start..bytes.len()).take_while(digit).count();
    bytes.splice(start..start + length, number.iter().copied());
}

fn insert(bytes: &mut Vec<u8>, piece: &[u8], random: &mut StdRng) {
    let at = random.random_range(0..=bytes.len());
    bytes.splice(at..at, piece.iter().copied());
}

/// A part of the bytes, short more often than long.
fn range(bytes: &[u8], random: &mut StdRng) -> std::ops::Range<usize> {
    let start = random.random_range(0..=bytes.len());
    let rest = bytes.len() - start;
    let most = rest.min(1 << random.random_range(0..=10));
    start..start + random.random_range(0..=most)
}

fn place(bytes: &[u8], random: &mut impl Rng) -> Option<usize> {
    (!bytes.is_empty()).then(|| random.random_range(0..bytes.len()))
}

fn pick<'a, T>(of: &'a [T], random: &mut impl Rng) -> &'a T {
    &of[random.random_range(0..of.len())]
}
