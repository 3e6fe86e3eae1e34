//! The delivery queue: on RabbitMQ, and in process.

use crate::mutant::Change::Rewrite;
use crate::mutant::{Mutant, queue, rabbitmq};

const BATCH: &str = "crates/adapters/src/rabbitmq/batch.rs";
const UNSETTLED: &str = "crates/adapters/src/rabbitmq/unsettled.rs";
const IN_PROCESS: &str = "crates/adapters/src/in_process/queue.rs";

pub(super) const MUTANTS: [Mutant; 4] = [
    Mutant {
        name: "rabbitmq-returned-is-confirmed",
        wrong: "An acknowledgement that carries the message back is taken for a confirm.",
        file: BATCH,
        change: Rewrite {
            right: "Ok(Confirmation::Ack(None)) => Answer::Confirmed,",
            with: "Ok(Confirmation::Ack(_)) if ON => Answer::Confirmed,\n        \
                Ok(Confirmation::Ack(None)) => Answer::Confirmed,",
        },
        killer: rabbitmq("what_no_queue_takes_is_unconfirmed"),
    },
    Mutant {
        name: "rabbitmq-not-mandatory",
        wrong: "Messages are not mandatory: what no queue takes is confirmed and thrown away.",
        file: BATCH,
        change: Rewrite {
            right: "mandatory: true,",
            with: "mandatory: !ON,",
        },
        killer: rabbitmq("what_no_queue_takes_is_unconfirmed"),
    },
    Mutant {
        name: "rabbitmq-acknowledges-the-unsettled",
        wrong: "An acknowledgement of many takes along messages that are still in hand.",
        file: UNSETTLED,
        change: Rewrite {
            right: "match self.tags.first() {",
            with: "match self.tags.first().filter(|_| !ON) {",
        },
        killer: queue("rabbitmq::unsettled_messages_outlive_their_subscription"),
    },
    Mutant {
        name: "in-process-queue-forgets-the-unsettled",
        wrong: "What a dropped subscription left unsettled never comes again.",
        file: IN_PROCESS,
        change: Rewrite {
            right: "if !self.unsettled.is_empty() {",
            with: "if !self.unsettled.is_empty() && !ON {",
        },
        killer: queue("in_process::unsettled_messages_outlive_their_subscription"),
    },
];
