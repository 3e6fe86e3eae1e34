-- What destinations' answers come to: holds, breakers, and what operators must
-- know. The Postgres half says the same.

-- Null is the default: 20 failures in a row, which go on for five seconds, and five
-- days.
alter table destinations add column breaker_failures integer
    constraint destinations_check_breaker_failures
    check (breaker_failures between 0 and 1000000000);
alter table destinations add column breaker_failing_for_seconds integer
    constraint destinations_check_breaker_failing_for_seconds
    check (breaker_failing_for_seconds between 0 and 1000000000);
alter table destinations add column breaker_disable_after_seconds integer
    constraint destinations_check_breaker_disable_after_seconds
    check (breaker_disable_after_seconds between 0 and 1000000000);

-- One row for each destination that has anything to remember; one that is well
-- has none. Outcomes write it, admission and claims read it.
create table health (
    destination_id text primary key,
    -- In a row, while the breaker is closed: each of an attempt that started when
    -- the one before had ended.
    failures integer not null default 0,
    -- When the first of them ended, and the last.
    failing_since integer,
    last_failed_at integer,
    -- Holds in a row that a 429 began.
    refusals integer not null default 0,
    held_since integer,
    -- Nothing starts before.
    held_until integer,
    held_for text
        constraint health_check_held_for check (held_for in ('asked', 'refused', 'breaker')),
    -- The breaker is open; once the hold is over, half open.
    opened_at integer,
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
) strict, without rowid;

-- What operators must know, in the transaction that made it true.
create table operational_events (
    id integer primary key autoincrement,
    event_type text not null,
    destination_id text not null,
    tenant_id text not null,
    -- A JSON object.
    details text not null,
    created_at integer not null
) strict;

-- Another URL is another receiver, and an owner who resumes says that it is
-- well: by whatever way, a user's own SQL too.
create trigger destinations_forget_health
after update of url, state, deleted_at on destinations
when old.url is not new.url
    or (old.state <> 'active' and new.state = 'active')
    or (old.deleted_at is null and new.deleted_at is not null)
begin
    delete from health where destination_id = new.id;
end;
