-- What keeps the tables short: ingest that knows when to say no, and retention.

-- Where backlogs stand, by the last count: those that refuse events, or are
-- long. Nothing on an event's way writes here: what is counted are the indexes
-- that hold what is pending.
create table backlog_standings (
    scope text not null
        constraint backlog_standings_check_scope
        check (scope in ('destination', 'tenant', 'all')),
    -- The nil UUID for all.
    id text not null,
    -- Whose a destination is; null for the others.
    tenant_id text,
    pending integer not null,
    -- How many may be pending, as whoever counted them was told.
    bound integer not null default 0,
    -- Since when events are refused, and how many were pending then; null: they
    -- are taken.
    refused_at integer,
    refused_pending integer,
    -- What refused clients are told.
    retry_after_ms integer not null,
    -- Of all: when the count began that all of them are of, and how long it took.
    counted_at integer,
    took_ms integer,
    primary key (scope, id)
) strict, without rowid;

insert into backlog_standings (scope, id, pending, retry_after_ms, counted_at, took_ms)
values ('all', '00000000-0000-0000-0000-000000000000', 0, 0, 0, 0);

-- What is over and old goes. Each walk begins where the last step ended.
create table retention_walks (
    name text primary key
        constraint retention_walks_check_name check (
            name in (
                'attempts', 'days', 'dead_letters', 'destinations', 'events', 'limit_history',
                'records'
            )
        ),
    -- Up to where this round has come: an id of attempts or of limit history, an
    -- event's rowid, the death and the id of a dead letter, or when a destination was
    -- deleted and its rowid. Postgres walks along events by their creation and ids,
    -- and has days.
    after_id integer not null default 0,
    after_at integer not null default 0,
    after_event text not null default '',
    -- Where a round begins, in Postgres. Here it costs nothing to begin at the
    -- first row: what is gone leaves nothing behind.
    left_id integer,
    left_at integer,
    began_at integer not null default 0,
    -- When the next step is due.
    due_at integer not null default 0
) strict, without rowid;

insert into retention_walks (name)
values ('attempts'), ('days'), ('dead_letters'), ('destinations'), ('events'), ('limit_history'),
    ('records');

-- By which Postgres gives each step to one process. There is one here.
create table retention_turn (
    id integer primary key default 1
        constraint retention_turn_check_id check (id = 1),
    due_at integer not null default 0
) strict;

insert into retention_turn (id) values (1);
