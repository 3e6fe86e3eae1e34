-- What operators must know: who is told, and what the watch remembers. The
-- Postgres half says the same.

-- Null: the relay has yet to turn it into events. What there was before this
-- is history.
alter table operational_events add column relayed_at integer;
update operational_events set relayed_at = created_at;

create index operational_events_to_relay on operational_events (id) where relayed_at is null;
create index operational_events_of_tenant on operational_events (tenant_id, id);

-- Null is the default: 10,000 attempts, 60 seconds. 0 is never.
alter table destinations add column alert_backlog integer
    constraint destinations_check_alert_backlog
    check (alert_backlog between 0 and 100000);
alter table destinations add column alert_under_delivery_seconds integer
    constraint destinations_check_alert_under_delivery_seconds
    check (alert_under_delivery_seconds between 0 and 86400);
-- It fails when so many of a hundred answers are failures.
alter table destinations add column alert_failing_percent integer
    constraint destinations_check_alert_failing_percent
    check (alert_failing_percent between 0 and 100);

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

-- The watch goes round, a step at a time.
create table watch_turn (
    id integer primary key,
    -- Up to where this round has looked.
    after text,
    -- When the next step is due.
    due_at integer not null
) strict;

insert into watch_turn (id, due_at) values (1, 0);

-- Each dead letter leaves a row, in the transaction that made it one, whatever
-- that was. The watch adds them up and deletes them.
create table dead_letter_tallies (
    id integer primary key autoincrement,
    destination_id text not null,
    tenant_id text not null
) strict;

create trigger attempts_tally_dead_letter
after update of dead_letter on attempts
when new.dead_letter and not old.dead_letter
begin
    insert into dead_letter_tallies (destination_id, tenant_id)
    values (new.destination_id, new.tenant_id);
end;
