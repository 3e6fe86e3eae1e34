-- What keeps the tables short: ingest that knows when to say no, and retention.

-- Where backlogs stand, by the last count: those that refuse events, or are
-- long. Nothing on an event's way writes here: what is counted are the indexes
-- that hold what is pending.
create table backlog_standings (
    scope text not null
        constraint backlog_standings_check_scope
        check (scope in ('destination', 'tenant', 'all')),
    -- The nil UUID for all.
    id uuid not null,
    -- Whose a destination is; null for the others.
    tenant_id uuid,
    pending bigint not null,
    -- How many may be pending, as whoever counted them was told.
    bound bigint not null default 0,
    -- Since when events are refused, and how many were pending then; null: they
    -- are taken.
    refused_at timestamptz,
    refused_pending bigint,
    -- What refused clients are told.
    retry_after_ms bigint not null,
    -- Of all: when the count began that all of them are of, and how long it took.
    counted_at timestamptz,
    took_ms bigint,
    primary key (scope, id)
) with (fillfactor = 50);

-- Its row is what makes counts take turns.
insert into backlog_standings (scope, id, pending, retry_after_ms, counted_at, took_ms)
values ('all', '00000000-0000-0000-0000-000000000000', 0, 0, '1970-01-01', 0);

-- What is over and old goes. Each walk begins where the last step ended.
create table retention_walks (
    name text primary key
        constraint retention_walks_check_name check (
            name in (
                'attempts', 'days', 'dead_letters', 'destinations', 'events', 'limit_history',
                'records'
            )
        ),
    -- Up to where this round has come: an id of attempts or of limit history, the
    -- time of an event (which its id says, or else its creation) and its id, the death and
    -- the id of a dead letter, when a destination was deleted and its id, or the end of a
    -- day since 1970. SQLite walks along events by their rowids.
    after_id bigint not null default 0,
    after_at timestamptz not null default '1970-01-01 00:00:00+00',
    after_event uuid not null default '00000000-0000-0000-0000-000000000000',
    -- Before the first row that had to stay in this round, which is where the next
    -- begins; null if none had to. Before it there are only index entries of rows
    -- that are gone, and as many as vacuum has not come to.
    left_id bigint,
    left_at timestamptz,
    began_at timestamptz not null,
    -- When the next step is due.
    due_at timestamptz not null
);

insert into retention_walks (name, began_at, due_at)
select n.name, clock_timestamp(), clock_timestamp()
from unnest(array[
    'attempts', 'days', 'dead_letters', 'destinations', 'events', 'limit_history', 'records'
]) as n (name);

-- Whoever takes a step holds the one row, and sets when the next may be taken: so
-- there is one step at a time, whoever takes it, and a pause after each.
create table retention_turn (
    id integer primary key default 1
        constraint retention_turn_check_id check (id = 1),
    due_at timestamptz not null
);

insert into retention_turn (due_at) values (clock_timestamp());
