//! What was done, and when: printed as it happens, and logged for the judge.

use std::io::Write;

use super::log::{Appender, Folder, Happening, boottime_us};

/// The log of happenings.
pub(crate) struct Diary {
    log: Appender,
    began_us: i64,
}

impl Diary {
    pub(crate) fn open(folder: &Folder) -> anyhow::Result<Self> {
        Ok(Self {
            log: folder.appender(Folder::HAPPENINGS)?,
            began_us: boottime_us(),
        })
    }

    /// Notes it, and says it.
    pub(crate) fn note(&self, what: &str, kind: &str, detail: &str) -> anyhow::Result<()> {
        self.write(what, kind, detail, 0)
    }

    /// Notes that the store's clock is being set forward by so much.
    pub(crate) fn note_step(&self, by_us: i64) -> anyhow::Result<()> {
        self.write("clock_step", "", &format!("by {by_us} us"), by_us)
    }

    /// Notes for how long a process has just been stopped.
    pub(crate) fn note_stop(&self, role: &str, by_us: i64) -> anyhow::Result<()> {
        self.append("stopped", role, "", by_us).map(drop)
    }

    /// Notes for how long the receivers stood still, and until when.
    pub(crate) fn note_lag(&self, until_us: i64, by_us: i64) -> anyhow::Result<()> {
        self.log.append(&Happening {
            at_us: until_us,
            what: "lag".to_owned(),
            kind: String::new(),
            detail: String::new(),
            by_us,
        })
    }

    fn write(&self, what: &str, kind: &str, detail: &str, by_us: i64) -> anyhow::Result<()> {
        let at_us = self.append(what, kind, detail, by_us)?;
        let seconds = (at_us - self.began_us) as f64 / 1e6;
        // Nobody to tell is no reason to stop.
        let _ = writeln!(
            std::io::stderr().lock(),
            "{seconds:>8.2} s  {what:<14} {kind:<24} {detail}"
        );
        Ok(())
    }

    fn append(&self, what: &str, kind: &str, detail: &str, by_us: i64) -> anyhow::Result<i64> {
        let at_us = boottime_us();
        self.log.append(&Happening {
            at_us,
            what: what.to_owned(),
            kind: kind.to_owned(),
            detail: detail.trim().to_owned(),
            by_us,
        })?;
        Ok(at_us)
    }
}
