//! From an input that fails to a smaller one that fails.

/// The most runs that shrinking one input takes.
const MAX_RUNS: usize = 4_096;

/// Leaves out ever smaller pieces, as long as what is left still fails.
pub(crate) fn smallest(mut input: Vec<u8>, mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut runs = 0;
    let mut piece = input.len().div_ceil(2);
    while piece > 0 {
        let mut smaller = false;
        let mut at = 0;
        while at < input.len() && runs < MAX_RUNS {
            let mut shorter = input.clone();
            shorter.drain(at..(at + piece).min(input.len()));
            runs += 1;
            if fails(&shorter) {
                input = shorter;
                smaller = true;
            } else {
                at += piece;
            }
        }
        if runs >= MAX_RUNS {
            break;
        }
        // Single bytes are tried again until none can go.
        piece = if piece == 1 && smaller { 1 } else { piece / 2 };
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_stays() {
        let input = b"all of this is noise: a then some more b and the rest".to_vec();
        let fails = |bytes: &[u8]| {
            let a = bytes.iter().position(|byte| *byte == b'a');
            a.is_some_and(|a| bytes[a..].contains(&b'b'))
        };
        assert_eq!(smallest(input, fails), b"ab");
    }

    #[test]
    fn nothing_is_the_smallest_input() {
        assert_eq!(smallest(b"anything".to_vec(), |_| true), b"");
    }
}
