-- What destinations' answers come to: holds, breakers, smart delivery's effective
-- limits at or below the configured ones, and what receivers allow when they are asked.

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

-- Another URL is another receiver, and an owner who resumes says that it is
-- well: by whatever way, a user's own SQL too.
create function destinations_forget_health() returns trigger
    language plpgsql
as $$
begin
    delete from health where destination_id = new.id;
    delete from response_times where destination_id = new.id;
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

-- ---------------------------------------------------------------------------
-- How much response times differ: what the margin of a sliding window is where its
-- owner has set none. Workers write it, each once a minute or when it has become
-- wider; admission reads it. No row: too few answers yet.
create table response_times (
    destination_id uuid primary key,
    -- The shortest, in microseconds, and when a worker said so last.
    least_micros bigint not null,
    least_at timestamptz not null,
    -- The 99th percentile.
    most_micros bigint not null,
    most_at timestamptz not null
) with (fillfactor = 50);

-- ---------------------------------------------------------------------------
-- Smart delivery.

-- One row for each destination that has it on. Outcomes write it, once a batch;
-- admission reads it. Not in limit_history, and without an epoch: the configured
-- limit is what is promised, this one is only planned by.
create table smart_limits (
    destination_id uuid primary key,
    -- Starts per second; null is as configured.
    per_second double precision
        constraint smart_limits_check_per_second check (per_second > 0),
    -- Null is as configured.
    max_in_flight integer
        constraint smart_limits_check_max_in_flight check (max_in_flight >= 1),
    reason text not null default 'configured'
        constraint smart_limits_check_reason
        check (reason in ('configured', 'refused', 'slow', 'raising')),
    -- What started before says nothing.
    begun_at timestamptz not null,
    -- What the law remembers, as JSON; null for nothing.
    memory text
) with (fillfactor = 50);

-- What was in force from when on. Kept for seven days, and what was in force then.
create table smart_history (
    id bigint generated always as identity primary key,
    destination_id uuid not null,
    in_force_from timestamptz not null,
    per_second double precision,
    max_in_flight integer,
    reason text not null
);

create index smart_history_of_destination on smart_history (destination_id, in_force_from, id);

-- By whatever way it is turned on or off; and another URL is another receiver.
-- The configured limit is in force from then on, and the sweep looks at it.
create function destinations_set_smart() returns trigger
    language plpgsql
as $$
begin
    delete from smart_limits where destination_id = new.id;
    if new.smart_delivery and new.deleted_at is null then
        insert into smart_limits (destination_id, begun_at) values (new.id, clock_timestamp());
    end if;
    insert into smart_history (destination_id, in_force_from, reason)
    values (new.id, clock_timestamp(), 'configured');
    update pacing set next_look_at = null where destination_id = new.id;
    return null;
end;
$$;

create trigger destinations_set_smart after update on destinations
    for each row
    when (
        old.smart_delivery <> new.smart_delivery
        or (new.smart_delivery and old.url <> new.url)
        or (new.smart_delivery and old.deleted_at is null and new.deleted_at is not null)
    )
    execute function destinations_set_smart();

create trigger destinations_insert_smart after insert on destinations
    for each row
    when (new.smart_delivery)
    execute function destinations_set_smart();

-- ---------------------------------------------------------------------------
-- Handshakes: whether a receiver allows that anything is sent to it.

-- One row for each destination that asks. What is in force by it is the destination's
-- `allowed_per_minute`, which has its history and revokes as any limit does.
create table handshakes (
    destination_id uuid primary key,
    tenant_id uuid not null,
    -- 1970: at once.
    next_ask_at timestamptz not null default 'epoch',
    -- Somebody asks, and nobody else does until then.
    asking_until timestamptz,
    -- When it was asked last, and what came of it. Null: it has yet to be.
    asked_at timestamptz,
    outcome text
        constraint handshakes_check_outcome
        check (outcome in ('allowed', 'refused', 'unreachable')),
    -- Why it is not allowed, in words.
    problem text,
    -- What it has allowed stands until then, if it cannot be reached meanwhile.
    allowed_until timestamptz,
    -- Asked in vain, in a row.
    failures integer not null default 0,
    constraint handshakes_check_asked_at check ((asked_at is null) = (outcome is null))
);

-- Whether anybody is to be asked; and who of whom, for tenants take turns.
create index handshakes_due on handshakes (next_ask_at);
create index handshakes_of_tenant on handshakes (tenant_id, next_ask_at);
create index handshakes_asking on handshakes (tenant_id, asking_until)
where asking_until is not null;

-- By whatever way it is turned on or off; and another URL is another receiver, which has
-- allowed nothing yet. Workers keep by the epoch whether requests name the origin. By its
-- name it comes before the trigger that decides what a change revokes, which then sees
-- the lower limit.
create function destinations_before_handshake() returns trigger
    language plpgsql
as $$
begin
    new.allowed_per_minute := case when new.handshake <> 'none' then 0 end;
    if tg_op = 'UPDATE' then
        new.epoch := greatest(new.epoch, old.epoch + 1);
    end if;
    return new;
end;
$$;

create trigger destinations_before_handshake before update on destinations
    for each row
    when (
        old.handshake <> new.handshake
        or (new.handshake <> 'none' and old.url <> new.url)
    )
    execute function destinations_before_handshake();

create trigger destinations_before_insert_handshake before insert on destinations
    for each row
    when (new.handshake <> 'none')
    execute function destinations_before_handshake();

create function destinations_set_handshake() returns trigger
    language plpgsql
as $$
begin
    delete from handshakes where destination_id = new.id;
    if new.handshake <> 'none' and new.deleted_at is null then
        insert into handshakes (destination_id, tenant_id) values (new.id, new.tenant_id);
    end if;
    return null;
end;
$$;

create trigger destinations_set_handshake after update on destinations
    for each row
    when (
        old.handshake <> new.handshake
        or (new.handshake <> 'none' and old.url <> new.url)
        or (new.handshake <> 'none' and old.deleted_at is null and new.deleted_at is not null)
    )
    execute function destinations_set_handshake();

create trigger destinations_insert_handshake after insert on destinations
    for each row
    when (new.handshake <> 'none')
    execute function destinations_set_handshake();

create function destinations_move_handshake() returns trigger
    language plpgsql
as $$
begin
    update handshakes set tenant_id = new.tenant_id where destination_id = new.id;
    return null;
end;
$$;

create trigger destinations_move_handshake after update on destinations
    for each row
    when (old.tenant_id <> new.tenant_id)
    execute function destinations_move_handshake();

-- Who resumes it wants to know at once.
create function destinations_resume_handshake() returns trigger
    language plpgsql
as $$
begin
    update handshakes set next_ask_at = 'epoch' where destination_id = new.id;
    return null;
end;
$$;

create trigger destinations_resume_handshake after update on destinations
    for each row
    when (old.state <> 'active' and new.state = 'active' and new.handshake <> 'none')
    execute function destinations_resume_handshake();
