-- What came of each destination's requests, counted behind the path of events.

create table tallies (
    destination_id uuid not null,
    -- Five minutes, kept for a day; or an hour, kept for a week.
    slot text not null
        constraint tallies_check_slot check (slot in ('minutes', 'hour')),
    -- Exclusive.
    ends_at timestamptz not null,
    succeeded bigint not null,
    -- With anything but a 429, which is counted by itself.
    failed bigint not null,
    refused bigint not null,
    -- Their worker ended, or never sent them.
    unknown bigint not null,
    primary key (destination_id, slot, ends_at)
);

create index tallies_by_age on tallies (slot, micros(ends_at));

-- How far each is counted, and what is remembered of it.
create table tally_marks (
    destination_id uuid primary key,
    -- Every start before that is counted.
    until timestamptz not null,
    last_failed_at timestamptz,
    last_failed_status integer,
    -- Each look has found it failing since, and its owner knows.
    failing_since timestamptz,
    failing_told boolean not null default false
);

-- The tally goes round: one at a time, whoever takes the turn.
create table tally_turn (
    id smallint primary key,
    -- Up to where this round has counted.
    after uuid,
    -- A destination of this round has more to count than a step counts.
    is_cut boolean not null default false,
    -- When the next step is due.
    due_at timestamptz not null
);

insert into tally_turn (id, due_at) values (1, clock_timestamp());
