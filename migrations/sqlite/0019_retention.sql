-- What is over and old goes. The Postgres half says the same.

-- An attempt outlives its event: payloads have a shorter age than the ledger.
-- What has to be there is seen to by retention, which deletes no event with an
-- attempt that is not over or a dead letter that can be replayed.
--
-- The constraint goes from the text of the schema, which is how SQLite's own
-- documentation removes one: no row changes, so a large file takes no longer.
pragma writable_schema = on;
update sqlite_schema set sql = replace(sql, ' references events (id)', '')
where type = 'table' and name = 'attempts';
pragma writable_schema = reset;

-- Each walk begins where the last step ended.
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

-- Dead letters that can be replayed, whosever they are.
create index attempts_dead_by_age on attempts (coalesce(finished_at, started_at), id)
    where dead_letter = 1 and replayed_at is null;

create index replays_finished on replays (finished_at) where finished_at is not null;
