//! The list.

use super::Kind::{Counter, Counters, Gauge, Histogram};
use super::Of::{All, Api, Operator, Relay, Router, Scheduler, Worker};
use super::{Kind, Metric, Of};

/// Have labels that are known with the first request only.
pub(super) const BY_REQUEST: [&str; 2] = [
    "paceline_api_request_seconds",
    "paceline_router_request_seconds",
];

const fn of(of: Of, kind: Kind, name: &'static str, help: &'static str) -> Metric {
    Metric {
        name,
        kind,
        of,
        help,
    }
}

const OUTCOMES: Kind = Counters("outcome", &["succeeded", "failed", "not_sent"]);

const CLASSES: Kind = Counters(
    "class",
    &["2xx", "3xx", "4xx", "429", "5xx", "other", "none"],
);

const LATE: Kind = Counters("ledger", &["recorded", "dated_early"]);

const RESULTS: Kind = Counters(
    "result",
    &[
        "done",
        "limit",
        "group",
        "concurrency",
        "places",
        "hold",
        "paused",
        "counting",
        "skipped",
        "gone",
    ],
);

const CHANGES: Kind = Counters(
    "event",
    &[
        "breaker_opened",
        "breaker_closed",
        "destination_disabled_soon",
        "destination_disabled",
    ],
);

const HANDSHAKES: Kind = Counters("result", &["allowed", "refused", "unreachable"]);

const TOKENS: Kind = Counters("result", &["granted", "refused"]);

const CONNECTIONS: Kind = Counters("bound", &["all", "address"]);

const REFUSALS: Kind = Counters("reason", &["too-fast", "tenant-too-fast", "backlog-full"]);

const RECONCILES: Kind = Counters("outcome", &operator::reconcile::OUTCOMES);

const WALKS: Kind = Counters("of", &super::WALKS);

/// All metrics that this program exports.
#[rustfmt::skip]
pub const METRICS: &[Metric] = &[
    of(All, Gauge, "paceline_build_info", "1, with the version and the role as labels"),
    of(All, Gauge, "paceline_part_up", "Whether the store, the schedule or the delivery queue can be worked with"),
    of(All, CONNECTIONS, "paceline_connections_refused_total", "Connections that were closed at once: there were too many, in all or from one address"),
    of(Api, Histogram, BY_REQUEST[0], "How long API requests took"),
    of(Api, Histogram, "paceline_ingest_batch_events", "Events per commit of ingest"),
    of(Api, REFUSALS, "paceline_ingest_refused_total", "Events that were not taken"),
    of(Api, Gauge, "paceline_pending_attempts", "All attempts that wait, have a permit or have started, as of the last count"),
    of(Api, Gauge, "paceline_pending_bound_attempts", "How many there may be before events are refused"),
    of(Api, Counter, "paceline_secrets_resealed_total", "Secrets that were brought under another key"),
    of(Scheduler, Histogram, "paceline_run_late_seconds", "From when a destination was to be looked at to its run"),
    of(Scheduler, RESULTS, "paceline_job_runs_total", "Runs of destinations by what stopped them"),
    of(Scheduler, Histogram, "paceline_admit_seconds", "How long admissions took"),
    of(Scheduler, Histogram, "paceline_publish_seconds", "How long the broker took to confirm permits"),
    of(Scheduler, Counter, "paceline_permits_admitted_total", "Permits that were given"),
    of(Scheduler, Counter, "paceline_permits_delayed_total", "Permits whose attempt had to wait for a limit"),
    of(Scheduler, Counter, "paceline_permits_expired_total", "Permits that ended unused"),
    of(Scheduler, Counter, "paceline_starts_unknown_total", "Starts without an outcome"),
    of(Scheduler, Counter, "paceline_attempts_expired_total", "Attempts that grew too old while they waited"),
    of(Scheduler, Counter, "paceline_dead_letters_replayed_total", "Dead letters that were brought back"),
    of(Scheduler, Counter, "paceline_events_resent_total", "Events that were sent to a destination again"),
    of(Scheduler, WALKS, "paceline_retention_examined_total", "Old rows that were looked at"),
    of(Scheduler, WALKS, "paceline_retention_removed_total", "Old rows that were deleted"),
    of(Scheduler, Counter, "paceline_tallied_requests_total", "Requests that were counted by what came of them"),
    of(Scheduler, Counter, "paceline_operational_events_relayed_total", "News that were handed to operational destinations"),
    of(Worker, Counter, "paceline_notices_told_total", "News that people were told, by mail or in a chat"),
    of(Worker, Counter, "paceline_notices_failed_total", "Messages to people that could not be sent, and will be again"),
    of(Scheduler, Counter, "paceline_notices_dropped_total", "News that people could not be told for a day"),
    of(Scheduler, Counter, "paceline_watch_looks_total", "Destinations that the watch looked at"),
    of(Scheduler, Gauge, "paceline_survey_timestamp_seconds", "When the last survey ended, by the store's clock"),
    of(Scheduler, Gauge, "paceline_backlog_attempts", "Attempts that wait"),
    of(Scheduler, Gauge, "paceline_backlog_destinations", "Destinations with a backlog"),
    of(Scheduler, Gauge, "paceline_backlog_oldest_seconds", "How long the first of what is due has waited"),
    of(Scheduler, Gauge, "paceline_retries_waiting_attempts", "Attempts that wait and have a time at which they are due"),
    of(Scheduler, Gauge, "paceline_in_flight_attempts", "Attempts that have started and have no outcome"),
    of(Scheduler, Gauge, "paceline_permits_outstanding", "Permits that may still start"),
    of(Scheduler, Gauge, "paceline_workers", "Workers whose heartbeat is fresh"),
    of(Scheduler, Gauge, "paceline_worker_places", "Attempts that they can have in hand"),
    of(Scheduler, Gauge, "paceline_breakers_open", "Destinations whose breaker is open"),
    of(Scheduler, Gauge, "paceline_under_delivery_destinations", "Destinations that get less than their limit allows, by the reason"),
    of(Scheduler, Gauge, "paceline_troubled_tenants", "Tenants in a trouble that operators were told of, by what they were told"),
    of(Scheduler, Gauge, "paceline_early_starts", "Starts that came too early, of the destinations that are shown"),
    of(Scheduler, Histogram, "paceline_limiter_lag_seconds", "From when an attempt was due to its start, of the destinations that are shown"),
    of(Scheduler, Gauge, "paceline_destination_backlog_attempts", "Attempts that wait"),
    of(Scheduler, Gauge, "paceline_destination_backlog_oldest_seconds", "How long the first of what is due has waited"),
    of(Scheduler, Gauge, "paceline_destination_in_flight_attempts", "Attempts that have started and have no outcome"),
    of(Scheduler, Gauge, "paceline_destination_limit_starts_per_second", "Starts per second that the limits allow"),
    of(Scheduler, Gauge, "paceline_destination_margin_seconds", "By how much the window of the shortest limit is planned longer than its period"),
    of(Scheduler, Gauge, "paceline_destination_tokens", "How many more the limits would let start now"),
    of(Scheduler, Gauge, "paceline_destination_drain_seconds", "How long the backlog takes at the limit"),
    of(Scheduler, Gauge, "paceline_destination_failed_ratio", "Which part of the requests of the last five minutes, hour or day failed"),
    of(Scheduler, Gauge, "paceline_destination_breaker_open", "Whether the breaker is open"),
    of(Scheduler, Gauge, "paceline_destination_short", "Whether it gets less than its limit allows just now"),
    of(Scheduler, Gauge, "paceline_destination_early_starts", "Starts that came too early"),
    of(Scheduler, Counter, "paceline_late_commits_total", "Destinations with events whose commit came after admission had passed them"),
    of(Relay, Counter, "paceline_outbox_relayed_total", "Rows of the outbox that became events"),
    of(Relay, Counter, "paceline_outbox_rejected_total", "Rows of the outbox that could not"),
    of(Worker, Counter, "paceline_starts_total", "Attempts that were claimed for sending"),
    of(Worker, Histogram, "paceline_claim_batch_permits", "Permits per claiming statement"),
    of(Worker, Histogram, "paceline_claim_seconds", "How long claiming statements took"),
    of(Worker, Histogram, "paceline_start_late_seconds", "From a permit's slot to its claim"),
    of(Worker, Counter, "paceline_margin_reports_lost_total", "Margins that could not be reported"),
    of(Worker, Counter, "paceline_send_reports_lost_total", "Sends that could not be reported before their answers"),
    of(Worker, LATE, "paceline_sends_late_total", "Requests that left later than the bound after their claim, by what the ledger says of it"),
    of(Worker, Histogram, "paceline_permit_ahead_seconds", "How long before its slot a worker had a permit in hand"),
    of(Worker, Counter, "paceline_permits_refused_total", "Permits that were late, stale, revoked or held when claimed"),
    of(Worker, Counter, "paceline_permits_turned_away_total", "Permits that found no place in time"),
    of(Worker, OUTCOMES, "paceline_attempts_total", "Outcomes of attempts"),
    of(Worker, CLASSES, "paceline_responses_total", "Requests that were sent, by how they were answered"),
    of(Worker, Histogram, "paceline_delivery_seconds", "From the recorded start to the last byte of the answer"),
    of(Worker, Histogram, "paceline_batch_events", "Events per request, where a destination takes batches"),
    of(All, Counter, "paceline_dead_letters_total", "Attempts whose event's tries are used up"),
    of(Worker, CHANGES, "paceline_health_changes_total", "What became of destinations by their answers"),
    of(Worker, HANDSHAKES, "paceline_handshakes_total", "Receivers that were asked whether they want to be sent anything"),
    of(Worker, TOKENS, "paceline_token_requests_total", "Requests for access tokens, by what they came to"),
    of(Worker, Counter, "paceline_secrets_closed_total", "Secrets that no key of this process opens"),
    of(Operator, RECONCILES, "paceline_operator_reconciles_total", "Looks at resources, by who failed"),
    of(Operator, Histogram, "paceline_operator_reconcile_seconds", "How long a look at a resource took"),
    of(Operator, Gauge, "paceline_operator_leads", "1 in the one that acts, 0 in those that wait for its Lease"),
    of(Router, Histogram, BY_REQUEST[1], "From a request to the head of its shard's answer, by shard and class of status"),
    of(Router, Gauge, "paceline_shard_up", "Whether a shard's API was ready at the last look"),
];
