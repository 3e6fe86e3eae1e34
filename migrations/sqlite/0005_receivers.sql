-- What destinations' answers come to: holds, breakers, smart delivery's effective
-- limits at or below the configured ones, and what receivers allow when they are asked.

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
        constraint health_check_held_for check (
            held_for = 'asked' or held_for = 'refused' or held_for = 'breaker'
        ),
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

-- Another URL is another receiver, and an owner who resumes says that it is
-- well: by whatever way, a user's own SQL too.
create trigger destinations_forget_health
after update of url, state, deleted_at on destinations
when old.url is not new.url
    or (old.state <> 'active' and new.state = 'active')
    or (old.deleted_at is null and new.deleted_at is not null)
begin
    delete from health where destination_id = new.id;
    delete from response_times where destination_id = new.id;
end;

-- ---------------------------------------------------------------------------
-- How much response times differ: what the margin of a sliding window is where its
-- owner has set none. Workers write it, each once a minute or when it has become
-- wider; admission reads it. No row: too few answers yet.
create table response_times (
    destination_id text primary key,
    -- The shortest, in microseconds, and when a worker said so last.
    least_micros integer not null,
    least_at integer not null,
    -- The 99th percentile.
    most_micros integer not null,
    most_at integer not null
) strict, without rowid;

-- ---------------------------------------------------------------------------
-- Smart delivery.

-- One row for each destination that has it on. Outcomes write it, once a batch;
-- admission reads it. Not in limit_history, and without an epoch: the configured
-- limit is what is promised, this one is only planned by.
create table smart_limits (
    destination_id text primary key,
    -- Starts per second; null is as configured.
    per_second real
        constraint smart_limits_check_per_second check (per_second > 0),
    -- Null is as configured.
    max_in_flight integer
        constraint smart_limits_check_max_in_flight check (max_in_flight >= 1),
    reason text not null default 'configured'
        constraint smart_limits_check_reason
        check (reason in ('configured', 'refused', 'slow', 'raising')),
    -- What started before says nothing.
    begun_at integer not null,
    -- What the law remembers, as JSON; null for nothing.
    memory text
) strict, without rowid;

-- What was in force from when on. Kept for seven days, and what was in force then.
create table smart_history (
    id integer primary key autoincrement,
    destination_id text not null,
    in_force_from integer not null,
    per_second real,
    max_in_flight integer,
    reason text not null
) strict;

create index smart_history_of_destination on smart_history (destination_id, in_force_from, id);

-- By whatever way it is turned on or off; and another URL is another receiver.
-- The configured limit is in force from then on, and the sweep looks at it.
create trigger destinations_set_smart
after update of smart_delivery, url, deleted_at on destinations
when old.smart_delivery <> new.smart_delivery
    or (new.smart_delivery and old.url is not new.url)
    or (new.smart_delivery and old.deleted_at is null and new.deleted_at is not null)
begin
    delete from smart_limits where destination_id = new.id;
    insert into smart_limits (destination_id, begun_at)
    select new.id, c.now from store_clock c
    where new.smart_delivery and new.deleted_at is null;
    insert into smart_history (destination_id, in_force_from, reason)
    select new.id, c.now, 'configured' from store_clock c;
    update pacing set next_look_at = null where destination_id = new.id;
end;

create trigger destinations_insert_smart after insert on destinations
when new.smart_delivery
begin
    insert into smart_limits (destination_id, begun_at)
    select new.id, c.now from store_clock c;
    insert into smart_history (destination_id, in_force_from, reason)
    select new.id, c.now, 'configured' from store_clock c;
end;

-- ---------------------------------------------------------------------------
-- Handshakes: whether a receiver allows that anything is sent to it.

-- One row for each destination that asks. What is in force by it is the destination's
-- `allowed_per_minute`, which has its history and revokes as any limit does.
create table handshakes (
    destination_id text primary key,
    tenant_id text not null,
    -- 0: at once.
    next_ask_at integer not null default 0,
    -- Somebody asks, and nobody else does until then.
    asking_until integer,
    -- When it was asked last, and what came of it. Null: it has yet to be.
    asked_at integer,
    outcome text
        constraint handshakes_check_outcome
        check (outcome in ('allowed', 'refused', 'unreachable')),
    -- Why it is not allowed, in words.
    problem text,
    -- What it has allowed stands until then, if it cannot be reached meanwhile.
    allowed_until integer,
    -- Asked in vain, in a row.
    failures integer not null default 0,
    constraint handshakes_check_asked_at check ((asked_at is null) = (outcome is null))
) strict, without rowid;

-- Whether anybody is to be asked; and who of whom, for tenants take turns.
create index handshakes_due on handshakes (next_ask_at);
create index handshakes_of_tenant on handshakes (tenant_id, next_ask_at);
create index handshakes_asking on handshakes (tenant_id, asking_until)
where asking_until is not null;

-- By whatever way it is turned on or off; and another URL is another receiver, which has
-- allowed nothing yet. Workers keep by the epoch whether requests name the origin.
create trigger destinations_set_handshake
after update of handshake, url, deleted_at on destinations
when old.handshake <> new.handshake
    or (new.handshake <> 'none' and old.url is not new.url)
    or (new.handshake <> 'none' and old.deleted_at is null and new.deleted_at is not null)
begin
    delete from handshakes where destination_id = new.id;
    insert into handshakes (destination_id, tenant_id)
    select new.id, new.tenant_id where new.handshake <> 'none' and new.deleted_at is null;
    update destinations set allowed_per_minute = iif(new.handshake = 'none', null, 0)
    where id = new.id;
    insert into limit_changes (destination_id, deleted_at, revokes)
    values (new.id, new.deleted_at, 1);
end;

create trigger destinations_insert_handshake after insert on destinations
when new.handshake <> 'none'
begin
    insert into handshakes (destination_id, tenant_id) values (new.id, new.tenant_id);
    update destinations set allowed_per_minute = 0 where id = new.id;
end;

create trigger destinations_move_handshake after update of tenant_id on destinations
when old.tenant_id <> new.tenant_id
begin
    update handshakes set tenant_id = new.tenant_id where destination_id = new.id;
end;

-- Who resumes it wants to know at once.
create trigger destinations_resume_handshake after update of state on destinations
when old.state <> 'active' and new.state = 'active' and new.handshake <> 'none'
begin
    update handshakes set next_ask_at = 0 where destination_id = new.id;
end;
