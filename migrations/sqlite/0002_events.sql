-- Events: what was accepted.

-- Who subscribes to what, of those that take events: an event's subscribers are found by the
-- few rows that its type can match, however many destinations its tenant has. By trigger, so
-- that whoever changes a destination changes it.
create table subscriptions (
    tenant_id text not null,
    -- A type, `order.*` or `*`. Below more than eight dots nobody is looked for.
    event_type text not null
        constraint subscriptions_check_event_types
        check (event_type not like '%.%.%.%.%.%.%.%.%.*'),
    destination_id text not null,
    primary key (tenant_id, event_type, destination_id)
) strict, without rowid;

-- What the table has to have.
create view subscribed as
select distinct d.tenant_id, s.value as event_type, d.id as destination_id
from destinations d, json_each(d.event_types) s
where d.deleted_at is null and d.state <> 'disabled' and s.type = 'text';

create trigger destinations_subscribe
after update of event_types, tenant_id, state, deleted_at on destinations
when old.event_types <> new.event_types
    or old.tenant_id <> new.tenant_id
    or (old.state = 'disabled') <> (new.state = 'disabled')
    or (old.deleted_at is null) <> (new.deleted_at is null)
begin
    delete from subscriptions
    where tenant_id = old.tenant_id and destination_id = old.id
        and event_type in (select value from json_each(old.event_types));
    insert into subscriptions (tenant_id, event_type, destination_id)
    select tenant_id, event_type, destination_id from subscribed where destination_id = new.id;
end;

create trigger destinations_insert_subscribe after insert on destinations
when new.event_types <> '[]'
begin
    insert into subscriptions (tenant_id, event_type, destination_id)
    select tenant_id, event_type, destination_id from subscribed where destination_id = new.id;
end;

create trigger destinations_delete_subscribe after delete on destinations
when old.event_types <> '[]'
begin
    delete from subscriptions
    where tenant_id = old.tenant_id and destination_id = old.id
        and event_type in (select value from json_each(old.event_types));
end;

create table events (
    id text primary key,
    tenant_id text not null,
    event_type text,
    content_type text not null,
    payload blob not null,
    created_at integer not null,
    -- A traceparent, and after a space what came as tracestate. Null where nobody
    -- traces. Whoever reads the column takes what is malformed for none.
    trace text,
    -- For the one destination that it named, and not for those that subscribe.
    directed integer not null default 0,
    -- Its first attempts go before those of other events, and so does what is sent again.
    urgent integer not null default 0
) strict;

-- For people who search: a tenant's events, the newest first, and no other's.
create index events_of_tenant on events (tenant_id, id);

-- What a tenant's `Idempotency-Key` stands for, until it expires. Written in
-- the transaction that accepts the event.
create table idempotency_keys (
    tenant_id text not null,
    key text not null,
    -- SHA-256 of what the request asked for.
    digest blob not null,
    event_id text not null,
    expires_at integer not null,
    primary key (tenant_id, key)
) strict, without rowid;

create index idempotency_keys_expired on idempotency_keys (expires_at);
