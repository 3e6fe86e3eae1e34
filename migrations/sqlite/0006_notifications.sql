-- What operators must know: who is told, what the watch remembers, and what came of each
-- destination's requests.

-- What operators must know, in the transaction that made it true.
create table operational_events (
    id integer primary key autoincrement,
    event_type text not null,
    -- Null: about the tenant as a whole.
    destination_id text,
    tenant_id text not null,
    -- A JSON object.
    details text not null,
    created_at integer not null,
    -- Null: the relay has yet to turn it into events.
    relayed_at integer
) strict;

create index operational_events_to_relay on operational_events (id) where relayed_at is null;
create index operational_events_of_tenant on operational_events (tenant_id, id);

-- Destinations that are told.
create table operational_destinations (
    -- The order of registration: what one is told of another goes by it.
    position integer primary key autoincrement,
    destination_id text not null unique,
    tenant_id text not null,
    -- Of whose destinations: the tenant's, or everybody's.
    scope text not null
        constraint operational_destinations_check_scope
        check (scope in ('tenant', 'installation')),
    -- Of which types, a JSON array; none is all.
    event_types text not null,
    created_at integer not null
) strict;

create index operational_destinations_of_tenant
    on operational_destinations (tenant_id, position);
create index operational_destinations_of_all
    on operational_destinations (position) where scope = 'installation';

-- By whatever way a destination is deleted, a user's own SQL too.
create trigger destinations_forget_operational after update of deleted_at on destinations
when old.deleted_at is null and new.deleted_at is not null
begin
    delete from operational_destinations where destination_id = new.id;
end;

-- People who are told, by mail or in a chat.
create table notice_addresses (
    -- The order of registration.
    position integer primary key autoincrement,
    id text not null unique,
    tenant_id text not null,
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
    sealed blob,
    -- Of which types, a JSON array; none is all.
    event_types text not null,
    -- Between two messages.
    every_seconds integer not null
        constraint notice_addresses_check_every check (every_seconds > 0),
    -- Nothing is sent to it before: for its digests, after failures, and while
    -- somebody sends.
    not_before integer not null,
    -- How often a digest of it was claimed: the last to do so may end it.
    lease integer not null default 0,
    -- In a row.
    failures integer not null default 0,
    created_at integer not null,
    constraint notice_addresses_check_sealed
        check ((form = 'slack') = (sealed is not null) and (sealed is null) = (key_id is null))
) strict;

create index notice_addresses_of_tenant on notice_addresses (tenant_id, position);
create index notice_addresses_of_all on notice_addresses (position) where scope = 'installation';
create index notice_addresses_by_key on notice_addresses (key_id, id) where sealed is not null;
create index notice_addresses_due on notice_addresses (not_before);

-- What an address has yet to be told.
create table notices (
    address_id text not null,
    operational_event_id integer not null,
    created_at integer not null,
    -- The claim of its address that sends it.
    lease integer,
    primary key (address_id, operational_event_id)
) strict, without rowid;

create index notices_by_age on notices (created_at);

-- One row for each destination that an alert is raised for, or may have to be.
create table watches (
    destination_id text primary key,
    tenant_id text not null,
    -- Its backlog is above the threshold, and operators know.
    backlog_high_since integer,
    -- It gets less than its limit allows.
    short_since integer,
    short_seen_at integer,
    short_for text,
    short_told integer not null default 0,
    -- Dead letters that operators do not know of yet.
    dead_letters integer not null default 0,
    dead_letters_told_at integer
) strict, without rowid;

-- One row for each tenant that an alert is raised for, or may have to be.
create table tenant_watches (
    tenant_id text primary key,
    -- Too few of its requests succeed.
    success_low_since integer,
    -- It has nearly as many destinations as it may have.
    destinations_high_since integer,
    -- Its backlog is nearly so long that its events are refused.
    backlog_high_since integer,
    -- Its events are refused.
    refused_since integer,
    -- Rows of the outbox that were rejected, and that operators do not know of yet.
    rejected integer not null default 0,
    rejected_told_at integer
) strict, without rowid;

-- The watch goes round, a step at a time: 1 the destinations, 2 the tenants.
create table watch_turn (
    id integer primary key,
    -- Up to where this round has looked.
    after text,
    -- When the next step is due.
    due_at integer not null
) strict;

insert into watch_turn (id, due_at) values (1, 0), (2, 0);

-- Each dead letter leaves a row, in the transaction that made it one. The watch adds them
-- up and deletes them. No trigger sees to it where the ledger is written (over.rs does):
-- with one, SQLite puts each row aside in a table of its own before it writes it.
create table dead_letter_tallies (
    id integer primary key autoincrement,
    destination_id text not null,
    tenant_id text not null
) strict;

create trigger ledger_tally_dead_letter
after update of dead_letter on ledger
when new.dead_letter and not old.dead_letter
begin
    insert into dead_letter_tallies (destination_id, tenant_id)
    values (new.destination_id, new.tenant_id);
end;

-- ---------------------------------------------------------------------------
-- Tallies, counted behind the path of events.

create table tallies (
    destination_id text not null,
    -- Five minutes, kept for a day; an hour, kept for a week; or a day, kept for thirty.
    slot text not null
        constraint tallies_check_slot check (slot = 'minutes' or slot = 'hour' or slot = 'day'),
    -- Exclusive.
    ends_at integer not null,
    succeeded integer not null,
    -- With anything but a 429, which is counted by itself.
    failed integer not null,
    refused integer not null,
    -- Their worker ended, or never sent them.
    unknown integer not null,
    -- How many answers took how long: two buckets for each doubling of a millisecond
    -- (an array of JSON).
    latencies text not null default '[]',
    primary key (destination_id, slot, ends_at)
) strict, without rowid;

create index tallies_by_age on tallies (slot, ends_at);

-- The same of a tenant's destinations together, in slots of five minutes.
create table tenant_tallies (
    tenant_id text not null,
    -- Exclusive.
    ends_at integer not null,
    succeeded integer not null,
    failed integer not null,
    primary key (tenant_id, ends_at)
) strict, without rowid;

create index tenant_tallies_by_age on tenant_tallies (ends_at);

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
