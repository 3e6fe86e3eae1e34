//! What was done, what was left, and what failed: each by the id that Svix has for it.

use serde::Serialize;

use crate::output::{self, Format};

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    EventType,
    Tenant,
    LimitGroup,
    Destination,
}

/// What became of it, or would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Done {
    Created,
    Updated,
    Unchanged,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    dry_run: bool,
    written: Vec<Written>,
    not_taken_over: Vec<Left>,
    failed: Vec<Failed>,
}

#[derive(Debug, Serialize)]
struct Written {
    kind: Kind,
    svix_id: String,
    external_id: String,
    done: Done,
}

#[derive(Debug, Serialize)]
struct Left {
    svix_id: String,
    what: String,
}

#[derive(Debug, Serialize)]
struct Failed {
    svix_id: String,
    error: String,
}

impl Kind {
    const ALL: [Self; 4] = [
        Self::EventType,
        Self::Tenant,
        Self::LimitGroup,
        Self::Destination,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::EventType => "event type",
            Self::Tenant => "tenant",
            Self::LimitGroup => "limit group",
            Self::Destination => "destination",
        }
    }
}

impl Done {
    const ALL: [Self; 3] = [Self::Created, Self::Updated, Self::Unchanged];

    const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
        }
    }
}

impl Report {
    pub(super) const fn new(dry_run: bool) -> Self {
        Self {
            dry_run,
            written: Vec::new(),
            not_taken_over: Vec::new(),
            failed: Vec::new(),
        }
    }

    pub(super) fn written(&mut self, kind: Kind, (svix_id, called): (&str, &str), done: Done) {
        self.written.push(Written {
            kind,
            svix_id: svix_id.to_owned(),
            external_id: called.to_owned(),
            done,
        });
    }

    pub(super) fn left(&mut self, svix_id: &str, left: Vec<String>) {
        self.not_taken_over
            .extend(left.into_iter().map(|what| Left {
                svix_id: svix_id.to_owned(),
                what,
            }));
    }

    pub(super) fn failed(&mut self, svix_id: &str, error: &anyhow::Error) {
        self.failed.push(Failed {
            svix_id: svix_id.to_owned(),
            error: format!("{error:#}"),
        });
    }

    /// Whether nothing failed.
    pub(super) const fn is_whole(&self) -> bool {
        self.failed.is_empty()
    }

    pub(super) fn print(&self, format: Format) -> anyhow::Result<()> {
        if format == Format::Json {
            return output::json(self);
        }
        let changed = (self.written.iter()).filter(|one| one.done != Done::Unchanged);
        let changed: Vec<Vec<String>> = changed.map(|one| self.row(one)).collect();
        let left = self.not_taken_over.iter();
        let left = left.map(|one| vec![one.svix_id.clone(), one.what.clone()]);
        let failed = self.failed.iter();
        let failed = failed.map(|one| vec![one.svix_id.clone(), one.error.clone()]);
        for (header, rows) in [
            (&["SVIX", "EXTERNAL ID", "KIND", "DONE"][..], changed),
            (&["SVIX", "NOT TAKEN OVER"], left.collect()),
            (&["SVIX", "FAILED"], failed.collect()),
        ] {
            if !rows.is_empty() {
                output::line(&format!("{}\n", output::table(header, rows)))?;
            }
        }
        for kind in Kind::ALL {
            output::line(&self.counted(kind))?;
        }
        output::line(&format!(
            "{} not taken over, {} failed",
            self.not_taken_over.len(),
            self.failed.len()
        ))
    }

    fn row(&self, one: &Written) -> Vec<String> {
        let would = if self.dry_run { "would be " } else { "" };
        vec![
            one.svix_id.clone(),
            one.external_id.clone(),
            one.kind.word().to_owned(),
            format!("{would}{}", one.done.word()),
        ]
    }

    /// `tenants: 2 created, 0 updated, 1 unchanged`.
    fn counted(&self, kind: Kind) -> String {
        let of_kind = self.written.iter().filter(|one| one.kind == kind);
        let of_kind: Vec<Done> = of_kind.map(|one| one.done).collect();
        let counts = Done::ALL.map(|done| {
            let count = of_kind.iter().filter(|one| **one == done).count();
            format!("{count} {}", done.word())
        });
        let would = if self.dry_run {
            " (nothing was written)"
        } else {
            ""
        };
        format!("{}s: {}{would}", kind.word(), counts.join(", "))
    }
}
