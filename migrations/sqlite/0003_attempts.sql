-- Attempts: those that are owed, and the ledger of those that are over; and what is kept
-- beside them. Postgres has the ledger by the day; a file has no partitions, and gives rows
-- back one by one.

-- An attempt is a row of `deliveries` as long as it is owed: it waits, has a permit or is
-- under way. When it is over the row goes, and one of `ledger` is written, once. So what
-- changes is small, and what is large is only added to. Whoever asks for attempts whatever
-- their state reads the view `attempts`.
--
-- No references: an attempt outlives its event, whose payload has a shorter age. Retention
-- deletes no event with an attempt that is not over or a dead letter that can be replayed.
-- Destinations are never deleted, but marked; a trigger sees to that.
--
-- Checks of what every delivery writes say `or`: of a list of three or more SQLite makes a
-- table, for each row that it checks.

-- What is owed. No id is given twice, whatever has gone.
create table deliveries (
    id integer primary key autoincrement,
    event_id text not null,
    destination_id text not null,
    tenant_id text not null,
    try_number integer not null default 1,
    state text not null default 'waiting'
        constraint deliveries_check_state
        check (state = 'waiting' or state = 'admitted' or state = 'started'),
    -- Null: a first attempt that was never admitted. Else when a retry is due,
    -- or the creation of one that is urgent, or whose permit was returned.
    due_at integer,
    permit integer,
    epoch integer,
    not_before integer,
    deadline integer,
    -- A coarse limit counts its start, so its outcome folds it.
    coarse integer not null default 0,
    -- Its outcome makes room that somebody waits for.
    crowded integer not null default 0,
    -- Where it is counted when it is over: at the end of its answer.
    by_response integer not null default 0,
    worker_id text,
    created_at integer not null,
    admitted_at integer,
    -- When it was claimed, or its slot if that was a moment ahead. What gives a start up
    -- goes by it, and so does what is signed.
    claimed_at integer,
    -- When its request's first byte was handed to the network, as its worker measured it:
    -- what limits count. Until that is known, the latest that it may have been: half a
    -- second after the claim, and never after the deadline.
    started_at integer,
    -- Tries of the event before its last replay: the policy counts from there.
    tries_before integer not null default 0,
    -- Not admitted from then on; null for never.
    expires_at integer,
    -- The replay that made it.
    replay_id text,
    -- Of the event's payload: how full a batch is, without reading it.
    payload_bytes integer not null default 0,
    -- The attempt in whose request it was sent. A limit counts requests, so
    -- whatever counts starts leaves these out.
    carried_by integer,
    -- Of an attempt in whose request others were: how many events that had. Null
    -- for one that was alone, and for those that were carried.
    batch_size integer,
    -- The largest batch that it may be in; null is the destination's own.
    -- Halved when a batch is split; 1 goes alone.
    batch_limit integer,
    -- It is in the urgent lane, with `due_at`: a first attempt of an urgent event, or a replayed one.
    urgent integer not null default 0,
    constraint deliveries_check_permit check ((permit is null) = (state = 'waiting')),
    constraint deliveries_check_admitted check (
        state <> 'admitted'
        or (epoch is not null and not_before is not null and deadline is not null)
    ),
    constraint deliveries_check_started_at check ((started_at is null) = (state <> 'started')),
    constraint deliveries_check_claimed_at
        check ((claimed_at is null) = (started_at is null)),
    constraint deliveries_check_carried check (carried_by is null or state = 'started')
) strict;

-- First attempts are in line in memory, by their ids: an index would scatter them (see
-- lines.rs). The others are here by when they are due, those of the urgent lane before all
-- that is not; what has a permit leaves it.
create index deliveries_due on deliveries (destination_id, urgent desc, due_at, id)
    where permit is null and due_at is not null;
-- What has a permit or is under way, the latter by its start. A run counts it, and its
-- starts, from the key alone. Whoever looks for what nobody came back for reads all of it,
-- by the keys: it is bounded by what may be out at once.
create index deliveries_held
    on deliveries (destination_id, state, started_at, not_before, deadline, crowded)
    where permit is not null and carried_by is null;
-- What is under way in the request of another.
create index deliveries_carried on deliveries (destination_id) where carried_by is not null;
create index deliveries_of_event on deliveries (event_id);
-- For whoever reads a backlog page by page, which is by id.
create index deliveries_due_by_id on deliveries (destination_id, id)
    where permit is null and due_at is not null;
create index deliveries_expiring on deliveries (expires_at)
    where permit is null and expires_at is not null;
create index deliveries_of_replay on deliveries (replay_id) where replay_id is not null;

-- What is over. An id is that of the delivery that it was.
create table ledger (
    id integer primary key,
    event_id text not null,
    destination_id text not null,
    tenant_id text not null,
    try_number integer not null default 1,
    state text not null
        constraint ledger_check_state check (
            state = 'succeeded' or state = 'failed' or state = 'unknown'
            or state = 'not_sent' or state = 'cancelled' or state = 'expired'
        ),
    due_at integer,
    -- By these a late answer finds one whose outcome nobody knew.
    permit integer,
    worker_id text,
    crowded integer not null default 0,
    -- Its start is in start_buckets.
    folded integer not null default 0,
    created_at integer not null,
    admitted_at integer,
    claimed_at integer,
    started_at integer,
    finished_at integer,
    -- Where answers count (`count`): the end of its answer, or of the longest time-out of
    -- one that nobody has the outcome of. Null where its start counts.
    counted_at integer,
    status integer,
    error text,
    response_body blob,
    -- A line each, `name: value`: beside a body, and of every answer that is no success.
    response_headers text,
    dead_letter integer not null default 0,
    tries_before integer not null default 0,
    expires_at integer,
    replay_id text,
    -- A dead letter that was replayed, and when.
    replayed_at integer,
    payload_bytes integer not null default 0,
    carried_by integer,
    batch_size integer,
    batch_limit integer,
    urgent integer not null default 0,
    constraint ledger_check_started_at check (
        (started_at is null) = (state in ('cancelled', 'expired'))
    ),
    constraint ledger_check_claimed_at check ((claimed_at is null) = (started_at is null))
) strict;

-- Starts, for the windows. `folded` is in the key: admission reads the few that
-- are not folded, however large the limit and so the number of those that are.
create index ledger_starts on ledger (destination_id, folded, started_at desc, id desc)
    where started_at is not null and carried_by is null;
create index ledger_answers on ledger (destination_id, counted_at desc)
    where counted_at is not null and carried_by is null;
create index ledger_of_event on ledger (event_id);
create index ledger_of_destination on ledger (destination_id, id);

-- Dead letters that can be replayed, by when they died: their outcome, or the
-- start of one whose outcome nobody knows.
create index ledger_dead
    on ledger (destination_id, coalesce(finished_at, started_at), id)
    where dead_letter = 1 and replayed_at is null;
create index ledger_dead_of_tenant
    on ledger (tenant_id, coalesce(finished_at, started_at), id)
    where dead_letter = 1 and replayed_at is null;
-- Whosever they are.
create index ledger_dead_by_age on ledger (coalesce(finished_at, started_at), id)
    where dead_letter = 1 and replayed_at is null;
create index ledger_of_replay on ledger (replay_id, state) where replay_id is not null;

-- Both, whatever the state, to be read. What a permit said is gone when it is over, but for
-- its number.
create view attempts as
select id, event_id, destination_id, tenant_id, created_at, try_number, tries_before,
    payload_bytes, dead_letter, folded, urgent, admitted_at, permit, null as epoch,
    null as not_before, null as deadline, 0 as coarse, crowded, 0 as by_response, state,
    worker_id, claimed_at, started_at, carried_by, batch_size, status, finished_at,
    counted_at, error, response_body, response_headers, batch_limit, due_at, expires_at,
    replay_id, replayed_at
from ledger
union all
select id, event_id, destination_id, tenant_id, created_at, try_number, tries_before,
    payload_bytes, 0, 0, urgent, admitted_at, permit, epoch, not_before, deadline, coarse,
    crowded, by_response, state, worker_id, claimed_at, started_at, carried_by,
    batch_size, null, null, null, null, null, null, batch_limit, due_at, expires_at,
    replay_id, null
from deliveries;

-- ---------------------------------------------------------------------------
-- What is kept beside them.

-- Starts that coarse limits count, each start once and in all four periods.
create table start_buckets (
    destination_id text not null,
    period text not null
        constraint start_buckets_check_period
        check (period = 'second' or period = 'minute' or period = 'hour' or period = 'day'),
    ends_at integer not null,
    shard integer not null,
    starts integer not null,
    primary key (destination_id, period, ends_at, shard)
) strict, without rowid;

create index start_buckets_by_age on start_buckets (period, ends_at);

create table workers (
    id text primary key,
    places integer not null,
    seen_at integer not null,
    retired integer not null default 0
) strict, without rowid;

-- A replay: dead letters, or events, that become waiting attempts of one destination again.
create table replays (
    id text primary key,
    tenant_id text not null,
    destination_id text not null references destinations (id),
    -- What it is of: dead letters, or events whatever became of them.
    source text not null default 'dead_letters'
        constraint replays_check_source check (source in ('dead_letters', 'events')),
    -- Of events: this one; null is any.
    event_id text,
    -- Of events: those only that the destination has not got.
    only_missed integer not null default 0,
    -- Which: null is any.
    attempt_id integer,
    event_type text,
    -- Of events: how an attempt there was answered, by its status or by the first digit of a
    -- class.
    status integer,
    -- Of events: how an attempt there ended.
    attempt_state text,
    -- Of events: what their ids, as they are written, have in them.
    event_text text,
    -- When a dead letter died, or an event was accepted.
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
    -- Of events: those without a payload any more, when it began.
    skipped integer not null default 0,
    -- Up to where the dead letters, or the events, were looked at.
    after_at integer,
    after_id integer,
    after_event text,
    -- When the last of those replayed would have started, at the share.
    paced_at integer,
    -- When a step looked at it last.
    looked_at integer,
    created_at integer not null,
    finished_at integer
) strict, without rowid;

create index replays_running on replays (tenant_id, id) where state = 'running';
create index replays_of_tenant on replays (tenant_id, id);
-- A destination that goes is asked for here.
create index replays_of_destination on replays (destination_id);
create index replays_finished on replays (finished_at) where finished_at is not null;

-- What has started, and how long it took from its event to its outcome. What is under way
-- is found by its permit.
create view starts as
select id, event_id, destination_id, tenant_id, created_at, try_number, tries_before,
    payload_bytes, dead_letter, folded, urgent, admitted_at, permit, null as epoch,
    null as not_before, null as deadline, 0 as coarse, crowded, 0 as by_response, state,
    worker_id, claimed_at, started_at, carried_by, batch_size, status, finished_at,
    counted_at, error, response_body, response_headers, batch_limit, due_at, expires_at,
    replay_id, replayed_at, finished_at - created_at as delivery_latency
from ledger where started_at is not null
union all
select id, event_id, destination_id, tenant_id, created_at, try_number, tries_before,
    payload_bytes, 0, 0, urgent, admitted_at, permit, epoch, not_before, deadline, coarse,
    crowded, by_response, state, worker_id, claimed_at, started_at, carried_by,
    batch_size, null, null, null, null, null, null, batch_limit, due_at, expires_at,
    replay_id, null, null
from deliveries where permit is not null and state = 'started';

-- Where first attempts wait is not known here, so whoever has none any more is drained.
create trigger destinations_before_delete before delete on destinations
when exists (
    select 1 from ledger a indexed by ledger_of_destination where a.destination_id = old.id
) or old.drained_at is null and exists (
    select 1 from deliveries a
    where a.destination_id = old.id and a.permit is null and a.due_at is null
) or exists (
    select 1 from deliveries a indexed by deliveries_due
    where a.destination_id = old.id and a.permit is null and a.due_at is not null
) or exists (
    select 1 from deliveries a indexed by deliveries_held
    where a.destination_id = old.id and a.permit is not null and a.carried_by is null
) or exists (
    select 1 from deliveries a indexed by deliveries_carried
    where a.destination_id = old.id and a.carried_by is not null
)
begin
    select raise(abort, 'the destination has attempts: set deleted_at instead');
end;
