//! What each process costs: CPU and memory of it and all its descendants, from
//! `/proc`.
//!
//! A server is found by the port that it listens on, so that one which was
//! running already is measured like one of ours. What runs on another machine
//! is not found, and the report says so.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::PathBuf;

/// The thread that writes to a SQLite database, as its process calls it. What it used is
/// in what its process did.
pub(crate) const SQLITE_WRITER: &str = "sqlite-writer";

/// A process or thread that is watched. Several with one name are added up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watched {
    pub(crate) name: String,
    pub(crate) what: What,
}

/// What the kernel is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// A process and its descendants.
    Tree(u32),
    /// One thread's `stat`, and the memory of its process, this one.
    Thread(PathBuf),
    /// The threads of a process that have the watched name; their memory is the process's.
    Named(u32),
}

impl Watched {
    /// A process and its descendants.
    pub(crate) fn tree(name: &str, process: u32) -> Self {
        Self {
            name: name.to_owned(),
            what: What::Tree(process),
        }
    }

    /// The writer of this process, if it turns out to have one.
    pub(crate) fn sqlite_writer(&self) -> Option<Self> {
        let What::Tree(process) = self.what else {
            return None;
        };
        Some(Self {
            name: SQLITE_WRITER.to_owned(),
            what: What::Named(process),
        })
    }
}

/// What has been used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Used {
    /// Seconds of a core, to a hundredth, in programs.
    pub(crate) user_seconds: f64,
    /// The same, in the kernel on their behalf.
    pub(crate) system_seconds: f64,
    /// What belongs to it alone, and the largest part that it shares.
    pub(crate) resident_mib: f64,
}

impl Used {
    /// Seconds of a core.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }
}

/// Looks at all of them. One that has ended is left out: what it used is known
/// to its parent only.
pub(crate) fn look(watched: &[Watched]) -> BTreeMap<String, Used> {
    let table = table();
    let mut used: BTreeMap<String, Used> = BTreeMap::new();
    for one in watched {
        let found = match &one.what {
            What::Tree(process) => tree(*process, &table),
            What::Thread(stat) => thread(stat).map(|used| Used {
                resident_mib: memory("self").map_or(0.0, |memory| memory.whole()),
                ..used
            }),
            What::Named(process) => named(*process, &one.name),
        };
        if let Some(found) = found {
            let sum = used.entry(one.name.clone()).or_default();
            sum.user_seconds += found.user_seconds;
            sum.system_seconds += found.system_seconds;
            sum.resident_mib += found.resident_mib;
        }
    }
    used
}

fn thread(stat: &std::path::Path) -> Option<Used> {
    let stat = parse_stat(&fs::read_to_string(stat).ok()?)?;
    Some(Used {
        user_seconds: stat.own.user as f64 / 100.0,
        system_seconds: stat.own.system as f64 / 100.0,
        resident_mib: 0.0,
    })
}

/// All of one name; the kernel keeps fifteen bytes of it.
fn named(process: u32, name: &str) -> Option<Used> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let has_name = |folder: &PathBuf| {
        let comm = fs::read_to_string(folder.join("comm"));
        comm.is_ok_and(|comm| comm.trim_end() == name)
    };
    let folders = tasks.flatten().map(|task| task.path()).filter(has_name);
    folders
        .filter_map(|folder| thread(&folder.join("stat")))
        .reduce(|sum, one| Used {
            user_seconds: sum.user_seconds + one.user_seconds,
            system_seconds: sum.system_seconds + one.system_seconds,
            resident_mib: 0.0,
        })
}

fn tree(root: u32, table: &HashMap<u32, Stat>) -> Option<Used> {
    table.get(&root)?;
    let mut members: HashSet<u32> = HashSet::from([root]);
    // Numbers are handed out in a circle, so a child may have a smaller one.
    loop {
        let child = |(process, stat): (&u32, &Stat)| {
            (members.contains(&stat.parent) && !members.contains(process)).then_some(*process)
        };
        let more: Vec<u32> = table.iter().filter_map(child).collect();
        if more.is_empty() {
            break;
        }
        members.extend(more);
    }
    let stats = || members.iter().filter_map(|process| table.get(process));
    // With what ended children had used, which their parents inherit.
    let user: u64 = stats()
        .map(|stat| stat.own.user + stat.inherited.user)
        .sum();
    let system: u64 = stats()
        .map(|stat| stat.own.system + stat.inherited.system)
        .sum();
    let memories: Vec<Memory> = (members.iter())
        .filter_map(|process| memory(&process.to_string()))
        .collect();
    let own: u64 = memories.iter().map(|memory| memory.own_kib).sum();
    let shared = memories.iter().map(|memory| memory.shared_kib).max();
    Some(Used {
        user_seconds: user as f64 / 100.0,
        system_seconds: system as f64 / 100.0,
        resident_mib: (own + shared.unwrap_or(0)) as f64 / 1_024.0,
    })
}

/// One process, as the kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: u32,
    own: Ticks,
    inherited: Ticks,
}

/// Of these, user space sees a hundred in a second, whatever the kernel counts
/// in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    user: u64,
    system: u64,
}

fn table() -> HashMap<u32, Stat> {
    let Ok(folders) = fs::read_dir("/proc") else {
        return HashMap::new();
    };
    let process = |entry: fs::DirEntry| -> Option<(u32, Stat)> {
        let process = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        Some((process, parse_stat(&stat)?))
    };
    folders.flatten().filter_map(process).collect()
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name, in parentheses, may hold anything; the rest are words.
    let (_, rest) = text.rsplit_once(')')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| -> Option<u64> { words.get(index)?.parse().ok() };
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        own: Ticks {
            user: number(11)?,
            system: number(12)?,
        },
        inherited: Ticks {
            user: number(13)?,
            system: number(14)?,
        },
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    own_kib: u64,
    shared_kib: u64,
}

impl Memory {
    fn whole(self) -> f64 {
        (self.own_kib + self.shared_kib) as f64 / 1_024.0
    }
}

fn memory(process: &str) -> Option<Memory> {
    parse_status(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

fn parse_status(text: &str) -> Option<Memory> {
    let kib = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.trim().parse().ok()
    };
    Some(Memory {
        own_kib: kib("RssAnon:")?,
        shared_kib: kib("RssFile:")? + kib("RssShmem:")?,
    })
}

/// What this machine is, for whoever compares reports.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("", |model| model.trim_start_matches([' ', '\t', ':']));
    format!("{cores} cores {model}").trim_end().to_owned()
}

/// The process that listens on a port of this machine.
pub(crate) fn listener(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let texts = tables
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    let sockets: HashSet<String> = texts.flat_map(|text| listening(&text, port)).collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers: Vec<u32> = processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|process| holds(*process, &sockets))
        .collect();
    // Children inherit the socket; the eldest is the server.
    numbers.sort_unstable();
    let table = table();
    let parent = |process: &u32| table.get(process).map(|stat| stat.parent);
    let eldest = |process: &&u32| parent(process).is_none_or(|parent| !numbers.contains(&parent));
    numbers.iter().find(eldest).copied()
}

/// The sockets that listen on a port, as links of open files name them.
fn listening(table: &str, port: u16) -> Vec<String> {
    let socket = |line: &str| -> Option<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (_, hex) = words.get(1)?.rsplit_once(':')?;
        let listens = *words.get(3)? == "0A" && u16::from_str_radix(hex, 16) == Ok(port);
        listens.then(|| format!("socket:[{}]", words.get(9).unwrap_or(&"")))
    };
    table.lines().filter_map(socket).collect()
}

fn holds(process: u32, sockets: &HashSet<String>) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else {
        return false;
    };
    let mut links = files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok());
    links.any(|link| link.to_str().is_some_and(|link| sockets.contains(link)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let text = "12 (a) b (c)) S 7 1 1 0 -1 4 1 2 3 4 100 20 3 4 20 0 1 0 5 6 7";
        let stat = Stat {
            parent: 7,
            own: Ticks {
                user: 100,
                system: 20,
            },
            inherited: Ticks { user: 3, system: 4 },
        };
        assert_eq!(parse_stat(text), Some(stat));
    }

    #[test]
    fn memory_is_told_apart_by_who_shares_it() {
        let text = "Name:\tx\nRssAnon:\t    1024 kB\nRssFile:\t 10 kB\nRssShmem:\t 6 kB\n";
        let memory = parse_status(text).unwrap();
        assert_eq!((memory.own_kib, memory.shared_kib), (1_024, 16));
        assert_eq!(parse_status("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn sockets_that_listen_are_told_from_those_that_talk() {
        let table = "  sl  local_address rem_address st\n\
            0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 41 1\n\
            1: 0100007F:1F90 0100007F:C350 01 0:0 0:0 0 0 0 42 1\n";
        assert_eq!(listening(table, 8_080), ["socket:[41]"]);
        assert!(listening(table, 50_000).is_empty());
    }

    #[test]
    fn a_thread_is_found_by_its_name() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = std::sync::mpsc::channel();
        let run = move || {
            begin.send(()).unwrap();
            ended.recv().unwrap_err();
        };
        let writer = std::thread::Builder::new().name(SQLITE_WRITER.to_owned());
        let writer = writer.spawn(run).unwrap();
        begun.recv().unwrap();
        let me = Watched::tree("me", std::process::id());
        let used = look(&[me.sqlite_writer().unwrap()]);
        assert!(used[SQLITE_WRITER].resident_mib < f64::EPSILON);
        let other = Watched {
            name: "nobody".to_owned(),
            what: What::Named(std::process::id()),
        };
        assert!(look(&[other]).is_empty());
        drop(end);
        writer.join().unwrap();
    }

    #[test]
    fn this_process_is_found_by_its_port_and_has_used_something() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let process = std::process::id();
        assert_eq!(listener(port), Some(process));
        let used = look(&[
            Watched::tree("me", process),
            Watched::tree("gone", u32::MAX),
        ]);
        assert!(used["me"].resident_mib > 1.0);
        assert!(!used.contains_key("gone"));
    }
}
