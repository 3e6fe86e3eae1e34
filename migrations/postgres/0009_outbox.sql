-- The outbox: users insert events in their own transactions, a relay turns
-- each row into exactly one event. Postgres only.

-- Rows with one destination share a lane, and so do a tenant's rows for
-- subscribers. A relay holds one lane at a time and reads it in order: so many
-- relays work beside each other, and each destination's rows keep their order.
create table outbox (
    -- The order of inserting.
    position bigint generated always as identity primary key,
    -- The event's id; receivers deduplicate on it.
    event_id uuid default new_event_id(),
    tenant_id uuid default '00000000-0000-0000-0000-000000000001',
    -- For one destination or, without one, for all who subscribe to the type.
    destination_id uuid,
    event_type text,
    content_type text default 'application/json',
    -- One of the two.
    payload text,
    payload_bytes bytea,
    -- Not sent before this, and not admitted from then on; null for at once, and never.
    deliver_at timestamptz,
    expires_at timestamptz,
    -- Its first attempts go before those of other events.
    urgent boolean default false,
    created_at timestamptz default clock_timestamp(),
    lane smallint not null generated always as ((uuid_hash(coalesce(
        destination_id, tenant_id, '00000000-0000-0000-0000-000000000001'
    )) & 15)::smallint) stored
) with (
    -- Emptied as fast as it is filled.
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 5000
);

create index outbox_of_lane on outbox (lane, position);

create table outbox_lanes (
    lane smallint primary key
);

insert into outbox_lanes (lane) select generate_series(0, 15);

-- Rows that could not be events, and why. Theirs to correct and insert again,
-- and to delete.
create table outbox_rejected (
    position bigint primary key,
    event_id uuid,
    tenant_id uuid,
    destination_id uuid,
    event_type text,
    content_type text,
    payload text,
    payload_bytes bytea,
    deliver_at timestamptz,
    expires_at timestamptz,
    urgent boolean,
    created_at timestamptz,
    reason text not null,
    rejected_at timestamptz not null default clock_timestamp()
);

-- Of whom rows were rejected, and how many: in the relay's transaction. Rows of their own,
-- so that no two relays wait for a counter; the watch adds them up and deletes them.
create table outbox_rejected_tallies (
    id bigint generated always as identity primary key,
    tenant_id uuid not null,
    rejected bigint not null
);

-- A hint for the relays, when the user's transaction commits.
create function outbox_after_insert() returns trigger
    language plpgsql
as $$
begin
    notify paceline_outbox;
    return null;
end;
$$;

create trigger outbox_after_insert after insert on outbox
    for each statement execute function outbox_after_insert();

-- What users write to has one name, whatever the schema that Paceline lives in:
-- `paceline.outbox`. They need usage of that schema and insert on that view,
-- and no right to anything else.
do $$
begin
    if current_schema() = 'paceline' or to_regclass('paceline.outbox') is not null then
        return;
    end if;
    create schema if not exists paceline;
    create view paceline.outbox as
        select position, event_id, tenant_id, destination_id, event_type, content_type, payload,
            payload_bytes, deliver_at, expires_at, urgent, created_at
        from outbox;
    create view paceline.outbox_rejected as select * from outbox_rejected;
exception
    when insufficient_privilege then
        raise warning 'no right to create the schema paceline: users insert into %.outbox',
            current_schema();
end;
$$;
