-- What workers need, and no more: a worker talks to receivers, so it has no business with
-- limits, addresses, keys of the API, or deleting anything of the ledger. Rights are on
-- columns where a table has others: what a worker does not write it cannot change. First, once:
--
--   create role paceline_worker login password '…';
--
-- Run this as the owner of the tables after each `paceline migrate`, which does so itself
-- with `--worker-role paceline_worker`, and let workers connect as that role, and
-- everybody else as the owner. It takes back what an earlier one
-- gave, and workers that run notice nothing.
begin;

-- Whoever does the same at once waits.
select pg_advisory_xact_lock(hashtext('paceline: rights of workers'));

revoke all on all tables in schema public from paceline_worker;
revoke all on all sequences in schema public from paceline_worker;
grant usage on schema public to paceline_worker;

-- Whether the schema is the one that it needs; and who it is.
grant select (version, success, checksum) on _sqlx_migrations to paceline_worker;
grant select on workers to paceline_worker;
grant insert, update (places, seen_at, retired) on workers to paceline_worker;

-- What it is to deliver, where, and how.
grant select (id, day, event_type, content_type, payload, created_at, trace)
    on events to paceline_worker;
grant select (
        id, tenant_id, name, url, state, deleted_at, epoch, pass_traceparent, handshake,
        allowed_per_minute, retry_policy, batch_max_events, batch_max_bytes, batch_max_wait_ms,
        breaker_failures, breaker_failing_for_seconds, breaker_disable_after_seconds,
        limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited, burst,
        shape, max_in_flight, safety_margin, margin_cap, count
    )
    on destinations to paceline_worker;
grant select (
        id, tenant_id, destination_id, kind, key_id, sealed, created_at, expires_at, trouble
    )
    on destination_secrets to paceline_worker;
grant select (id, name, tier) on tenants to paceline_worker;
grant select (
        name, limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited,
        burst, shape, max_in_flight
    )
    on tiers to paceline_worker;

-- Claims, and permits that go back. Whose an attempt is and what it is of stays.
grant select, delete on deliveries to paceline_worker;
grant update (
        state, worker_id, claimed_at, started_at, due_at, permit, epoch, not_before, deadline,
        coarse, crowded, carried_by, batch_size
    )
    on deliveries to paceline_worker;
grant select (destination_id, first_after, held_until) on pacing to paceline_worker;
grant update (deferred_until) on pacing to paceline_worker;

-- Retries. The first attempt of a day sets the sequence forward, with the owner's rights:
-- whoever may set it himself can use all ids up.
grant insert (
        event_id, destination_id, tenant_id, try_number, due_at, created_at, tries_before,
        expires_at, payload_bytes, batch_limit, replay_id, urgent
    )
    on deliveries to paceline_worker;
grant usage on sequence attempts_id_seq to paceline_worker;
alter function attempts_day_begins() security definer set search_path = public, pg_temp;

-- Outcomes. What is over leaves the deliveries, and stays in the ledger, where only an
-- outcome that comes late changes anything. It reads no answers there.
grant select (
        id, event_id, destination_id, tenant_id, state, permit, worker_id, try_number,
        tries_before, expires_at, payload_bytes, batch_limit, replay_id, urgent, dead_letter,
        coarse, folded, crowded, claimed_at, started_at
    )
    on attempts to paceline_worker;
-- To lock what an outcome is of takes a right to update a column.
grant update (error) on attempts to paceline_worker;
grant select (id, destination_id, coarse, folded, crowded) on ledger to paceline_worker;
grant insert (
        id, event_id, destination_id, tenant_id, try_number, due_at, created_at, admitted_at,
        tries_before, expires_at, replay_id, payload_bytes, batch_limit, urgent, permit, coarse,
        crowded, worker_id, claimed_at, carried_by, batch_size, folded, state, started_at,
        finished_at, counted_at, status, error, response_body, response_headers, dead_letter
    )
    on ledger to paceline_worker;
grant update (
        state, started_at, finished_at, status, error, response_body, response_headers,
        dead_letter, folded
    )
    on ledger to paceline_worker;
grant insert (destination_id, tenant_id) on dead_letter_tallies to paceline_worker;
-- What a large limit counts.
grant select on start_buckets to paceline_worker;
grant insert, update (starts) on start_buckets to paceline_worker;

-- What receivers' answers come to.
grant select, insert, delete on health to paceline_worker;
grant update (
        failures, failing_since, last_failed_at, refusals, held_since, held_until, held_for,
        opened_at, probes, disabled_for
    )
    on health to paceline_worker;
grant select, insert on response_times to paceline_worker;
grant update (least_micros, least_at, most_micros, most_at) on response_times to paceline_worker;
grant select (destination_id, begun_at, memory) on smart_limits to paceline_worker;
grant update (per_second, max_in_flight, reason, memory) on smart_limits to paceline_worker;
grant select (destination_id, in_force_from), insert, delete on smart_history to paceline_worker;
-- Why it gets no token: of a secret nothing else changes.
grant update (trouble, troubled_at) on destination_secrets to paceline_worker;
grant select on handshakes to paceline_worker;
grant update (
        next_ask_at, asking_until, asked_at, outcome, problem, allowed_until, failures
    )
    on handshakes to paceline_worker;
grant insert (event_type, destination_id, tenant_id, details)
    on operational_events to paceline_worker;

-- A receiver that is gone is disabled, and what it allows when it is asked is written down;
-- nothing else of a destination changes. What goes with that is done with the owner's rights:
-- its permits are taken back, the history is written, and it subscribes to nothing. Its tier is locked before it, which
-- would take a right to change tiers.
grant update (state, allowed_per_minute) on destinations to paceline_worker;
alter function destinations_before_update() security definer set search_path = public, pg_temp;
alter function destinations_after_update() security definer set search_path = public, pg_temp;
alter function destinations_subscribe() security definer set search_path = public, pg_temp;
alter function lock_tiers_of(uuid[]) security definer set search_path = public, pg_temp;

-- What people are to be told, and who.
grant select (id, created_at, event_type, destination_id, tenant_id, details)
    on operational_events to paceline_worker;
grant select (
        id, tenant_id, scope, form, shown, event_types, every_seconds, key_id, sealed, failures,
        lease, not_before
    )
    on notice_addresses to paceline_worker;
grant update (lease, not_before, failures) on notice_addresses to paceline_worker;
grant select (address_id, operational_event_id, lease), update (lease), delete
    on notices to paceline_worker;

commit;
