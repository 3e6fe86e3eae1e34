-- Retry policies, expiry, dead letters and their replay.

-- What is not the default of domain::retry, as JSON. Read when a start is
-- claimed; a change of it revokes nothing.
alter table destinations add column retry_policy text
    constraint destinations_check_retry_policy check (
        json_valid(retry_policy) and json_type(retry_policy) = 'object'
        and coalesce(json_extract(retry_policy, '$.max_tries'), 1) between 1 and 100
    );
-- How old its events may become before they start; null for any age. Holds
-- for events that are accepted after a change.
alter table destinations add column max_age_ms integer
    constraint destinations_check_max_age_ms check (max_age_ms between 1 and 2592000000);

-- Tries of the event before its last replay: the policy counts from there.
alter table attempts add column tries_before integer not null default 0;
-- Not admitted from then on; null for never.
alter table attempts add column expires_at integer;
-- The replay that made it.
alter table attempts add column replay_id text;
-- A dead letter that was replayed, and when.
alter table attempts add column replayed_at integer;

-- For whoever reads a backlog page by page, which is by id.
create index attempts_due_by_id on attempts (destination_id, id)
    where state = 'waiting' and due_at is not null;

create index attempts_expiring on attempts (expires_at)
    where state = 'waiting' and expires_at is not null;

-- Dead letters that can be replayed, by when they died: their outcome, or the
-- start of one whose outcome nobody knows.
create index attempts_dead
    on attempts (destination_id, coalesce(finished_at, started_at), id)
    where dead_letter = 1 and replayed_at is null;
create index attempts_dead_of_tenant
    on attempts (tenant_id, coalesce(finished_at, started_at), id)
    where dead_letter = 1 and replayed_at is null;
create index attempts_of_replay on attempts (replay_id, state) where replay_id is not null;

-- A replay: dead letters of one destination that become waiting attempts again.
create table replays (
    id text primary key,
    tenant_id text not null,
    destination_id text not null references destinations (id),
    -- Which: null is any.
    attempt_id integer,
    event_type text,
    status integer,
    died_from integer,
    -- The creation of the replay at the latest.
    died_before integer not null,
    -- Which part of the destination's limit it may use.
    share real not null
        constraint replays_check_share check (share > 0 and share <= 1),
    state text not null default 'running'
        constraint replays_check_state check (state in ('running', 'completed', 'cancelled')),
    total integer not null,
    done integer not null default 0,
    -- Up to where the dead letters were looked at.
    after_at integer,
    after_id integer,
    -- When the last of those replayed would have started, at the share.
    paced_at integer,
    created_at integer not null,
    finished_at integer
) strict, without rowid;

create index replays_running on replays (id) where state = 'running';
create index replays_of_tenant on replays (tenant_id, id);
-- A destination that goes is asked for here.
create index replays_of_destination on replays (destination_id);
