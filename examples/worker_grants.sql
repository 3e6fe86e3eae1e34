-- What workers need, and no more: a worker talks to receivers, so it has no business with
-- limits, addresses, keys of the API, or deleting anything of the ledger. First, once:
--
--   create role paceline_worker login password '…';
--
-- Run this as the owner of the tables after each `paceline migrate`, and let workers
-- connect as that role, and everybody else as the owner.
grant usage on schema public to paceline_worker;

-- Whether the schema is the one that it needs; who it is; what it is to deliver.
grant select on _sqlx_migrations, attempts_horizon to paceline_worker;
grant select, insert, update on workers to paceline_worker;
grant select on destinations, destination_secrets, events, tenants, tiers to paceline_worker;

-- Claims, outcomes, retries and permits that go back. What is over leaves the deliveries,
-- and stays in the ledger.
grant select, update on attempts to paceline_worker;
grant select, insert, update, delete on deliveries to paceline_worker;
grant select, insert, update on ledger to paceline_worker;
grant usage on sequence attempts_id_seq to paceline_worker;
grant select, update on pacing to paceline_worker;
grant select, insert, update on dead_letter_tallies to paceline_worker;

-- What receivers' answers come to.
grant select, insert, update, delete on health to paceline_worker;
grant select, insert, update, delete on response_times to paceline_worker;
grant insert on operational_events to paceline_worker;
-- Why it gets no token: of a secret nothing else changes.
grant update (trouble, troubled_at) on destination_secrets to paceline_worker;
grant select, update on smart_limits to paceline_worker;
grant select, insert, delete on smart_history to paceline_worker;
grant select, update on handshakes to paceline_worker;

-- A receiver that is gone is disabled, and what it allows when it is asked is written down;
-- nothing else of a destination changes. What goes
-- with that is done with the owner's rights: its permits are taken back, and the history
-- is written.
grant update (state, allowed_per_minute) on destinations to paceline_worker;
alter function destinations_before_update() security definer set search_path = public, pg_temp;
alter function destinations_after_update() security definer set search_path = public, pg_temp;

-- What people are to be told, and who.
grant select on operational_events to paceline_worker;
grant select on notice_addresses to paceline_worker;
grant update (lease, not_before, failures) on notice_addresses to paceline_worker;
grant select, update (lease), delete on notices to paceline_worker;
