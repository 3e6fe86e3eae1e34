-- What operators must know: who is told, what the watch remembers, and what came of each
-- destination's requests.

-- What operators must know, in the transaction that made it true.
create table operational_events (
    id bigint generated always as identity primary key,
    event_type text not null,
    -- Null: about the tenant as a whole.
    destination_id uuid,
    tenant_id uuid not null,
    -- A JSON object.
    details text not null,
    created_at timestamptz not null default clock_timestamp(),
    -- Null: the relay has yet to turn it into events.
    relayed_at timestamptz
);

create index operational_events_to_relay on operational_events (id) where relayed_at is null;
create index operational_events_of_tenant on operational_events (tenant_id, id);

-- Destinations that are told.
create table operational_destinations (
    -- The order of registration: what one is told of another goes by it.
    position bigint generated always as identity primary key,
    destination_id uuid not null unique,
    tenant_id uuid not null,
    -- Of whose destinations: the tenant's, or everybody's.
    scope text not null
        constraint operational_destinations_check_scope
        check (scope in ('tenant', 'installation')),
    -- Of which types; none is all.
    event_types text[] not null,
    created_at timestamptz not null default clock_timestamp()
);

create index operational_destinations_of_tenant
    on operational_destinations (tenant_id, position);
create index operational_destinations_of_all
    on operational_destinations (position) where scope = 'installation';

-- By whatever way a destination is deleted, a user's own SQL too.
create function destinations_forget_operational() returns trigger
    language plpgsql
as $$
begin
    delete from operational_destinations where destination_id = new.id;
    return null;
end;
$$;

create trigger destinations_forget_operational after update of deleted_at on destinations
    for each row
    when (old.deleted_at is null and new.deleted_at is not null)
    execute function destinations_forget_operational();

-- People who are told, by mail or in a chat.
create table notice_addresses (
    -- The order of registration.
    position bigint generated always as identity primary key,
    id uuid not null unique,
    tenant_id uuid not null,
    -- Of whose destinations: the tenant's, or everybody's.
    scope text not null
        constraint notice_addresses_check_scope
        check (scope in ('tenant', 'installation')),
    form text not null
        constraint notice_addresses_check_form check (form in ('email', 'slack')),
    -- A mail address; of a webhook, whose path is a secret, the host.
    shown text not null,
    -- The URL of a webhook, and the id of the key that it is sealed under.
    key_id text,
    sealed bytea,
    -- Of which types; none is all.
    event_types text[] not null,
    -- Between two messages.
    every_seconds integer not null
        constraint notice_addresses_check_every check (every_seconds > 0),
    -- Nothing is sent to it before: for its digests, after failures, and while
    -- somebody sends.
    not_before timestamptz not null default clock_timestamp(),
    -- How often a digest of it was claimed: the last to do so may end it.
    lease bigint not null default 0,
    -- In a row.
    failures integer not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    constraint notice_addresses_check_sealed
        check ((form = 'slack') = (sealed is not null) and (sealed is null) = (key_id is null))
);

create index notice_addresses_of_tenant on notice_addresses (tenant_id, position);
create index notice_addresses_of_all on notice_addresses (position) where scope = 'installation';
create index notice_addresses_by_key on notice_addresses (key_id, id) where sealed is not null;
create index notice_addresses_due on notice_addresses (not_before);

-- What an address has yet to be told.
create table notices (
    address_id uuid not null,
    operational_event_id bigint not null,
    created_at timestamptz not null default clock_timestamp(),
    -- The claim of its address that sends it.
    lease bigint,
    primary key (address_id, operational_event_id)
);

create index notices_by_age on notices (created_at);

-- One row for each destination that an alert is raised for, or may have to be.
create table watches (
    destination_id uuid primary key,
    tenant_id uuid not null,
    -- Its backlog is above the threshold, and operators know.
    backlog_high_since timestamptz,
    -- It gets less than its limit allows.
    short_since timestamptz,
    short_seen_at timestamptz,
    short_for text,
    short_told boolean not null default false,
    -- Dead letters that operators do not know of yet.
    dead_letters bigint not null default 0,
    dead_letters_told_at timestamptz
);

-- One row for each tenant that an alert is raised for, or may have to be.
create table tenant_watches (
    tenant_id uuid primary key,
    -- Too few of its requests succeed.
    success_low_since timestamptz,
    -- It has nearly as many destinations as it may have.
    destinations_high_since timestamptz,
    -- Its backlog is nearly so long that its events are refused.
    backlog_high_since timestamptz,
    -- Its events are refused.
    refused_since timestamptz,
    -- Rows of the outbox that were rejected, and that operators do not know of yet.
    rejected bigint not null default 0,
    rejected_told_at timestamptz
);

-- The watch goes round: one at a time, whoever takes the turn. 1 is the round of the
-- destinations, 2 that of the tenants.
create table watch_turn (
    id smallint primary key,
    -- Up to where this round has looked.
    after uuid,
    -- When the next step is due.
    due_at timestamptz not null
);

insert into watch_turn (id, due_at) values (1, clock_timestamp()), (2, clock_timestamp());

-- Each dead letter leaves a row, in the transaction that made it one, whatever
-- that was. Rows of their own, so that no two transactions wait for a counter;
-- the watch adds them up and deletes them.
create table dead_letter_tallies (
    id bigint generated always as identity primary key,
    destination_id uuid not null,
    tenant_id uuid not null
);

create function tally_dead_letter() returns trigger
    language plpgsql
as $$
begin
    insert into dead_letter_tallies (destination_id, tenant_id)
    values (new.destination_id, new.tenant_id);
    return null;
end;
$$;

create trigger ledger_tally_new_dead_letter after insert on ledger
    for each row
    when (new.dead_letter)
    execute function tally_dead_letter();

create trigger ledger_tally_dead_letter after update of dead_letter on ledger
    for each row
    when (new.dead_letter and not old.dead_letter)
    execute function tally_dead_letter();

-- ---------------------------------------------------------------------------
-- Tallies, counted behind the path of events.

create table tallies (
    destination_id uuid not null,
    -- Five minutes, kept for a day; an hour, kept for a week; or a day, kept for thirty.
    slot text not null
        constraint tallies_check_slot check (slot in ('minutes', 'hour', 'day')),
    -- Exclusive.
    ends_at timestamptz not null,
    succeeded bigint not null,
    -- With anything but a 429, which is counted by itself.
    failed bigint not null,
    refused bigint not null,
    -- Their worker ended, or never sent them.
    unknown bigint not null,
    -- How many answers took how long: two buckets for each doubling of a millisecond
    -- (those at the end are left out while they are empty).
    latencies bigint[] not null default '{}',
    primary key (destination_id, slot, ends_at)
);

create index tallies_by_age on tallies (slot, micros(ends_at));

-- The same of a tenant's destinations together, in slots of five minutes.
create table tenant_tallies (
    tenant_id uuid not null,
    -- Exclusive.
    ends_at timestamptz not null,
    succeeded bigint not null,
    failed bigint not null,
    primary key (tenant_id, ends_at)
);

create index tenant_tallies_by_age on tenant_tallies (micros(ends_at));

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
