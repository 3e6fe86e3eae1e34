//! A receiver that takes ten seconds, with more events than the places that the slow
//! may have: as they come free, they are taken again.
use std::io::Write;
use std::sync::{Arc, Mutex};

use domain::policy::LimitSettings;
use engine::worker::places_of_the_slow;
use simulation::counts::Counts;
use simulation::scenario::{Behaviour, Mood, Operation, Scenario, What};
use simulation::world::{self, PLACES};

/// How long its receiver takes, and how often its places could be taken in turn.
const ANSWERS_AFTER_S: u64 = 10;
const TURNS: u32 = 12;

/// Its receiver is slow until then, which is longer than all of it may take.
const LASTS_S: u64 = 400;

/// One destination without a limit of its own, one worker, and nothing else.
fn scenario(events: u32) -> Scenario {
    let agenda = [
        What::Receiver {
            destination: 0,
            behaviour: Behaviour::Slow {
                millis: ANSWERS_AFTER_S * 1_000,
            },
            lasts_ms: LASTS_S * 1_000,
        },
        What::Arrivals {
            destination: 0,
            events,
            every_ms: 0,
        },
    ];
    let operations = agenda.into_iter().zip(0..);
    Scenario {
        seed: 1,
        mood: Mood::Calm,
        destinations: vec![LimitSettings {
            unlimited: true,
            max_in_flight: Some(10_000),
            ..LimitSettings::default()
        }],
        schedulers: 1,
        workers: 1,
        operations: operations
            .map(|(what, number)| Operation {
                number,
                at_ms: 0,
                what,
            })
            .collect(),
        lasts_ms: LASTS_S * 1_000,
    }
}

/// The lines of a run's trace.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// When each request ended, in seconds.
fn ended(trace: &Lines) -> Vec<f64> {
    let text = String::from_utf8(trace.0.lock().unwrap().clone()).unwrap();
    let sent = text.lines().filter(|line| line.contains(" Send: "));
    sent.map(|line| line.split_whitespace().next().unwrap().parse().unwrap())
        .collect()
}

/// Each turn takes as long as an answer, and a tenth of that at most to begin.
#[test]
fn places_that_come_free_are_taken_again_at_once() {
    let counts = Counts::default();
    let events = TURNS * places_of_the_slow(PLACES);
    let trace = Lines::default();
    let sink = Box::new(trace.clone());
    let report = world::run(&scenario(events), Some(sink), &counts);
    assert_eq!(report.broken, []);
    let ended = ended(&trace);
    assert_eq!(ended.len(), events as usize);
    let turns = f64::from(TURNS) * ANSWERS_AFTER_S as f64;
    let took = ended.last().copied().unwrap();
    assert!(took <= turns * 1.1, "{took} s for {turns} s of answers");
}
