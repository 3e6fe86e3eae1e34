-- What is over and old goes. The SQLite half says the same.

-- An attempt outlives its event: payloads have a shorter age than the ledger.
-- What has to be there is seen to by retention, which deletes no event with an
-- attempt that is not over or a dead letter that can be replayed; ingest writes
-- both in one transaction.
alter table attempts drop constraint attempts_event_id_fkey;

-- Of whom nothing in here is as hot as the rows, and each walk begins where the
-- last step ended.
create table retention_walks (
    name text primary key
        constraint retention_walks_check_name check (
            name in (
                'attempts', 'days', 'dead_letters', 'destinations', 'events', 'limit_history',
                'records'
            )
        ),
    -- Up to where this round has come: an id of attempts or of limit history, the
    -- creation and the id of an event, the death and the id of a dead letter, when
    -- a destination was deleted and its id, or the end of a day since 1970. SQLite
    -- walks along events by their rowids.
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

create index events_by_age on events (created_at, id);

-- Dead letters that can be replayed, whosever they are. By micros(), so that no
-- plan that looks for a destination's can take it.
create index attempts_dead_by_age on attempts (micros(coalesce(finished_at, started_at)), (id + 0))
    where dead_letter and replayed_at is null;

create index replays_finished on replays (finished_at) where finished_at is not null;
