//! What the kernel says of a process, and percentiles.

use anyhow::Context;

/// The value below which so many per cent of them are; zero of none.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(0.0)
}

/// Resident memory.
pub(crate) fn resident_mib(process: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))
        .context("read the memory of a process (Linux only)")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| {
        line.trim()
            .trim_end_matches(" kB")
            .trim()
            .parse::<f64>()
            .ok()
    });
    Ok(kib.context("no VmRSS")? / 1024.0)
}

/// Seconds of a core that it has used so far, to a hundredth.
pub(crate) fn cpu_seconds(process: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))
        .context("read the CPU time of a process (Linux only)")?;
    // The name, in parentheses, may hold anything; the rest are words. User and
    // system time are the 14th and 15th of all, the 12th and 13th after it.
    let (_, rest) = stat.rsplit_once(')').context("no name")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |index: usize| -> anyhow::Result<f64> {
        let word: &&str = words.get(index).context("too few words")?;
        Ok(word.parse()?)
    };
    // The kernel tells user space hundredths, whatever it counts in.
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few() {
        assert!(percentile(&[], 99).abs() < f64::EPSILON);
        let hundred: Vec<f64> = (0..100).map(f64::from).collect();
        assert!((percentile(&hundred, 50) - 50.0).abs() < f64::EPSILON);
        assert!((percentile(&hundred, 99) - 99.0).abs() < f64::EPSILON);
        assert!((percentile(&hundred, 100) - 99.0).abs() < f64::EPSILON);
    }
}
