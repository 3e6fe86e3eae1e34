-- What destinations' answers come to: holds, breakers, and what operators must
-- know. The SQLite half says the same.

-- Null is the default: 20 failures in a row, which go on for five seconds, and five
-- days.
alter table destinations
    add column breaker_failures integer
        constraint destinations_check_breaker_failures
        check (breaker_failures between 0 and 1000000000),
    add column breaker_failing_for_seconds integer
        constraint destinations_check_breaker_failing_for_seconds
        check (breaker_failing_for_seconds between 0 and 1000000000),
    add column breaker_disable_after_seconds integer
        constraint destinations_check_breaker_disable_after_seconds
        check (breaker_disable_after_seconds between 0 and 1000000000);

-- One row for each destination that has anything to remember; one that is well
-- has none. Outcomes write it, admission and claims read it.
create table health (
    destination_id uuid primary key,
    -- In a row, while the breaker is closed: each of an attempt that started when
    -- the one before had ended.
    failures integer not null default 0,
    -- When the first of them ended, and the last.
    failing_since timestamptz,
    last_failed_at timestamptz,
    -- Holds in a row that a 429 began.
    refusals integer not null default 0,
    held_since timestamptz,
    -- Nothing starts before.
    held_until timestamptz,
    held_for text
        constraint health_check_held_for check (held_for in ('asked', 'refused', 'breaker')),
    -- The breaker is open; once the hold is over, half open.
    opened_at timestamptz,
    -- That failed since.
    probes integer not null default 0,
    disabled_for text
        constraint health_check_disabled_for check (disabled_for in ('gone', 'failing')),
    constraint health_check_failing_since check (
        (failing_since is null) = (last_failed_at is null)
    ),
    constraint health_check_held_until check (
        (held_until is null) = (held_since is null) and (held_until is null) = (held_for is null)
    )
) with (fillfactor = 50);

-- What operators must know, in the transaction that made it true.
create table operational_events (
    id bigint generated always as identity primary key,
    event_type text not null,
    destination_id uuid not null,
    tenant_id uuid not null,
    -- A JSON object.
    details text not null,
    created_at timestamptz not null default clock_timestamp()
);

-- Another URL is another receiver, and an owner who resumes says that it is
-- well: by whatever way, a user's own SQL too.
create function destinations_forget_health() returns trigger
    language plpgsql
as $$
begin
    delete from health where destination_id = new.id;
    return null;
end;
$$;

create trigger destinations_forget_health after update on destinations
    for each row
    when (
        old.url <> new.url
        or (old.state <> 'active' and new.state = 'active')
        or (old.deleted_at is null and new.deleted_at is not null)
    )
    execute function destinations_forget_health();
