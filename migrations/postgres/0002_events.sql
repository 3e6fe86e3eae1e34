-- Events: what was accepted. By the day, so that what is old goes as a whole table and not
-- row by row.

-- The day in UTC, whatever the session's time zone.
create function utc_day(at timestamptz) returns date
    language sql immutable parallel safe
    return (at at time zone 'UTC')::date;

-- Events know their day by their id: of version 7, it begins with the time.
-- All other ids, and those of before the first day, have no day of their own:
-- they are under 1970-01-01, and go row by row. Constant for ever, for it is
-- where an event is looked for. From its bytes: three times for each event, and of its text
-- that took five times as long.

do $$
declare
    first_day date := utc_day(clock_timestamp());
    first_id text := rpad(
        lpad(to_hex((first_day - date '1970-01-01') * 86400000::bigint), 12, '0'), 32, '0');
begin
    execute format(
        $sql$
        create function event_day(id uuid) returns date
            language sql immutable parallel safe
            return case
                when get_byte(uuid_send(id), 6) >> 4 = 7 and id >= %L::uuid then
                    date '1970-01-01' + (
                        ('x' || encode(substr(uuid_send(id), 1, 6), 'hex'))::bit(48)::bigint
                            / 86400000
                    )::integer
                else date '1970-01-01'
            end
        $sql$,
        first_id);
end;
$$;

-- When an id of version 7 was given, to the millisecond.
create function event_at(id uuid) returns timestamptz
    language sql immutable parallel safe
    return timestamptz '1970-01-01 00:00:00+00' + interval '1 millisecond'
        * ('x' || encode(substr(uuid_send(id), 1, 6), 'hex'))::bit(48)::bigint;

-- An id of version 7, of now.
create function new_event_id() returns uuid
    language sql volatile parallel safe
    return (
        lpad(to_hex(floor(extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0')
        || '7' || substr(translate(gen_random_uuid()::text, '-', ''), 14)
    )::uuid;

-- Whether one who subscribes to these types takes an event of that type: by the type, by
-- `order.*` or by `*`.
create function subscribes(event_types text[], event_type text) returns boolean
    language sql immutable parallel safe
    return event_type = any (event_types) or '*' = any (event_types) or exists (
        select from unnest(event_types) s
        where right(s, 2) = '.*' and starts_with(event_type, left(s, -1))
    );

-- Who subscribes to what, of those that take events: an event's subscribers are found by the
-- few rows that its type can match, however many destinations its tenant has. By trigger, so
-- that whoever changes a destination changes it.
create table subscriptions (
    tenant_id uuid not null,
    -- A type, `order.*` or `*`. Below more than eight dots nobody is looked for.
    event_type text not null
        constraint subscriptions_check_event_types
        check (event_type not like '%.%.%.%.%.%.%.%.%.*'),
    destination_id uuid not null,
    primary key (tenant_id, event_type, destination_id)
);

create function destinations_subscribe() returns trigger
    language plpgsql
as $$
begin
    if tg_op <> 'INSERT' then
        delete from subscriptions s
        using unnest(old.event_types) t (event_type)
        where s.tenant_id = old.tenant_id and s.event_type = any (array[t.event_type])
            and s.destination_id = old.id;
    end if;
    if tg_op <> 'DELETE' and new.deleted_at is null and new.state <> 'disabled' then
        insert into subscriptions (tenant_id, event_type, destination_id)
        select distinct new.tenant_id, s, new.id from unnest(new.event_types) s
        where s is not null;
    end if;
    return null;
end;
$$;

create trigger destinations_subscribe after update on destinations
    for each row
    when (
        old.event_types <> new.event_types
        or old.tenant_id <> new.tenant_id
        or (old.state = 'disabled') <> (new.state = 'disabled')
        or (old.deleted_at is null) <> (new.deleted_at is null)
    )
    execute function destinations_subscribe();

create trigger destinations_insert_subscribe after insert on destinations
    for each row
    when (new.event_types <> '{}')
    execute function destinations_subscribe();

create trigger destinations_delete_subscribe after delete on destinations
    for each row
    when (old.event_types <> '{}')
    execute function destinations_subscribe();

create table events (
    id uuid not null,
    tenant_id uuid not null,
    event_type text,
    content_type text not null,
    payload bytea not null,
    created_at timestamptz not null,
    -- The id of its first attempt at the first of its destinations, or at the only one.
    delivery bigint,
    day date not null
        constraint events_check_day check (day = event_day(id)),
    -- A traceparent, and after a space what came as tracestate. Null where nobody
    -- traces. Without a check: whoever reads the column takes what is malformed for none.
    trace text,
    -- For the one destination that it named, and not for those that subscribe.
    directed boolean not null default false,
    -- Its first attempts go before those of other events, and so does what is sent again.
    urgent boolean not null default false,
    -- The ids of the other first attempts, one for each destination; null where there is one
    -- alone, for an array of one takes 29 bytes. `deliveries_of` and `ledger_of` find first
    -- attempts by `delivery` and these. Whoever writes an event and its attempts by hand
    -- writes them too, each in one of the two columns: its page does not show the attempts
    -- else, and its payload may go before they do.
    deliveries bigint[],
    -- An id has one day, so the pair is unique if and only if the id is.
    primary key (id, day)
) partition by list (day);

-- For people who search: a tenant's events, the newest first, and no other's.
create index events_of_tenant on events (tenant_id, id);

-- Those without a day of their own.
create table events_timeless (
    like events including defaults including constraints including generated
    including storage including comments
);
alter table events attach partition events_timeless for values in ('1970-01-01');

-- By age. The ids of all others are in its order.
create index events_timeless_by_age on events_timeless (created_at, id);

-- What a tenant's `Idempotency-Key` stands for, until it expires. Written in
-- the transaction that accepts the event: two requests with one key wait for
-- each other at the primary key.
create table idempotency_keys (
    tenant_id uuid not null,
    key text not null,
    -- SHA-256 of what the request asked for.
    digest bytea not null,
    event_id uuid not null,
    expires_at timestamptz not null,
    primary key (tenant_id, key)
);

create index idempotency_keys_expired on idempotency_keys (expires_at);
