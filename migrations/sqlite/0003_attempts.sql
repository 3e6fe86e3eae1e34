-- Attempts: the backlog and the ledger, and what is kept beside them. Postgres has both by
-- the day; a file has no partitions, and gives rows back one by one.

-- An attempt outlives its event, whose payload has a shorter age, so there is no reference.
-- Retention deletes no event with an attempt that is not over or a dead letter that can be
-- replayed.
create table attempts (
    id integer primary key autoincrement,
    event_id text not null,
    destination_id text not null references destinations (id),
    tenant_id text not null,
    try_number integer not null default 1,
    state text not null default 'waiting'
        constraint attempts_check_state check (
            state in (
                'waiting', 'admitted', 'started', 'succeeded', 'failed', 'unknown', 'not_sent',
                'cancelled', 'expired'
            )
        ),
    -- Null: a first attempt that was never admitted. Else when a retry is due,
    -- or the creation of one whose permit was returned.
    due_at integer,
    permit integer,
    epoch integer,
    not_before integer,
    deadline integer,
    -- A coarse limit counts its start, so its outcome folds it.
    coarse integer not null default 0,
    -- Its start is in start_buckets.
    folded integer not null default 0,
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
    finished_at integer,
    -- Where answers count (`count`): the end of its answer, or of the longest time-out of
    -- one that nobody has the outcome of. Null where its start counts.
    counted_at integer,
    delivery_latency integer generated always as (finished_at - created_at) stored,
    status integer,
    error text,
    response_body blob,
    dead_letter integer not null default 0,
    -- Tries of the event before its last replay: the policy counts from there.
    tries_before integer not null default 0,
    -- Not admitted from then on; null for never.
    expires_at integer,
    -- The replay that made it.
    replay_id text,
    -- A dead letter that was replayed, and when.
    replayed_at integer,
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
    constraint attempts_check_admitted check (
        state <> 'admitted'
        or (permit is not null and epoch is not null
            and not_before is not null and deadline is not null)
    ),
    constraint attempts_check_started_at check (
        (started_at is null) = (state in ('waiting', 'admitted', 'cancelled', 'expired'))
    ),
    constraint attempts_check_claimed_at check ((claimed_at is null) = (started_at is null))
) strict;

-- The backlog: first attempts in creation order, and the others by when they
-- are due. What is admitted leaves its index.
create index attempts_first on attempts (destination_id, id)
    where state = 'waiting' and due_at is null;
create index attempts_due on attempts (destination_id, due_at, id)
    where state = 'waiting' and due_at is not null;
create index attempts_admitted on attempts (destination_id, not_before, deadline)
    where state = 'admitted';
create index attempts_deadline on attempts (deadline) where state = 'admitted';
create index attempts_in_flight on attempts (destination_id)
    where state = 'started' and carried_by is null;
create index attempts_claimed on attempts (claimed_at, worker_id) where state = 'started';
-- Starts, for the windows. `folded` is in the key: admission reads the few that
-- are not folded, however large the limit and so the number of those that are.
create index attempts_starts on attempts (destination_id, folded, started_at desc, id desc)
    where started_at is not null and carried_by is null;
create index attempts_answers on attempts (destination_id, counted_at desc)
    where counted_at is not null and carried_by is null;
create index attempts_of_event on attempts (event_id);
create index attempts_of_destination on attempts (destination_id, id);

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
-- Whosever they are.
create index attempts_dead_by_age on attempts (coalesce(finished_at, started_at), id)
    where dead_letter = 1 and replayed_at is null;
create index attempts_of_replay on attempts (replay_id, state) where replay_id is not null;

-- ---------------------------------------------------------------------------
-- What is kept beside them.

-- Starts that coarse limits count, each start once and in all four periods.
create table start_buckets (
    destination_id text not null,
    period text not null
        constraint start_buckets_check_period
        check (period in ('second', 'minute', 'hour', 'day')),
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
    status integer,
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
    created_at integer not null,
    finished_at integer
) strict, without rowid;

create index replays_running on replays (id) where state = 'running';
create index replays_of_tenant on replays (tenant_id, id);
-- A destination that goes is asked for here.
create index replays_of_destination on replays (destination_id);
create index replays_finished on replays (finished_at) where finished_at is not null;

-- What has started.
create view starts as select * from attempts where started_at is not null;
