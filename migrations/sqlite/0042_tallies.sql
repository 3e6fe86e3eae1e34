-- What came of each destination's requests, counted behind the path of events.

create table tallies (
    destination_id text not null,
    -- Five minutes, kept for a day; or an hour, kept for a week.
    slot text not null
        constraint tallies_check_slot check (slot in ('minutes', 'hour')),
    -- Exclusive.
    ends_at integer not null,
    succeeded integer not null,
    -- With anything but a 429, which is counted by itself.
    failed integer not null,
    refused integer not null,
    -- Their worker ended, or never sent them.
    unknown integer not null,
    primary key (destination_id, slot, ends_at)
) strict, without rowid;

create index tallies_by_age on tallies (slot, ends_at);

-- How far each is counted, and what is remembered of it.
create table tally_marks (
    destination_id text primary key,
    -- Every start before that is counted.
    until integer not null,
    last_failed_at integer,
    last_failed_status integer,
    -- Each look has found it failing since, and its owner knows.
    failing_since integer,
    failing_told integer not null default 0
) strict, without rowid;

-- The tally goes round, a step at a time.
create table tally_turn (
    id integer primary key,
    -- Up to where this round has counted.
    after text,
    -- A destination of this round has more to count than a step counts.
    is_cut integer not null default 0,
    -- When the next step is due.
    due_at integer not null
) strict;

insert into tally_turn (id, due_at) values (1, 0);
