-- Paceline's schema on Postgres. The SQLite half says the same, table by
-- table; a test compares the two.
--
-- Everything lives in the schema that our connections' search_path names first:
-- `public`, unless the URL says otherwise. Times are timestamptz, read with clock_timestamp() and never now():
-- now() is when the transaction began, and a limit is judged by when things
-- happened.

-- ---------------------------------------------------------------------------
-- Time on the wire: whole microseconds since the Unix epoch, exact both ways.
-- Both are inlined into the statements that call them, so they cost no call.

create function micros(at timestamptz) returns bigint
    language sql immutable parallel safe
    return (extract(epoch from (at - timestamptz '1970-01-01 00:00:00+00')) * 1000000)::bigint;

-- Stable and not immutable because `timestamptz + interval` is: in general it
-- depends on the time zone. A number of microseconds does not. The product
-- with an interval is in double precision, exact up to 2^53 µs: the year 2255.
create function from_micros(micros bigint) returns timestamptz
    language sql stable parallel safe
    return timestamptz '1970-01-01 00:00:00+00' + micros * interval '1 microsecond';

-- ---------------------------------------------------------------------------
-- Limits.

-- The nine columns of a destination's or a tier's limits, as one value.
create type limit_settings as (
    limit_per_second integer,
    limit_per_minute integer,
    limit_per_hour integer,
    limit_per_day integer,
    unlimited boolean,
    burst integer,
    shape text,
    max_in_flight integer,
    safety_margin double precision
);

-- What is in force for `own` under `tier`: the same as the domain's
-- LimitSettings::or_tier; a test compares the two on random rows.
create function resolved_limits(own limit_settings, tier limit_settings)
    returns limit_settings
    language plpgsql immutable parallel safe
as $$
declare
    effective limit_settings := own;
begin
    if not own.unlimited
        and num_nonnulls(
            own.limit_per_second, own.limit_per_minute, own.limit_per_hour, own.limit_per_day
        ) = 0
    then
        effective := tier;
        effective.safety_margin := own.safety_margin;
    end if;
    effective.max_in_flight := coalesce(own.max_in_flight, tier.max_in_flight);
    return effective;
end;
$$;

-- What a null max_in_flight stands for: 50, or a quarter of a second's worth
-- of the limit where that is more (LimitSettings::policy).
create function max_in_flight_of(limits limit_settings) returns double precision
    language sql immutable parallel safe
    return coalesce(
        limits.max_in_flight,
        greatest(50, floor(least(
            limits.limit_per_second,
            limits.limit_per_minute / 60.0,
            limits.limit_per_hour / 3600.0,
            limits.limit_per_day / 86400.0
        ) / 4.0))
    )::double precision;

-- Whether everything that `before` allows is allowed by `after` too, so that
-- permits which are already out may stay. Says no where it is not sure: a
-- revocation costs a moment, a missing one would break a limit.
create function is_pure_raise(before limit_settings, after limit_settings)
    returns boolean
    language plpgsql immutable parallel safe
as $$
declare
    old_shape text := coalesce(before.shape, 'sliding_window');
    new_shape text := coalesce(after.shape, 'sliding_window');
begin
    if before is not distinct from after then
        return true;
    end if;
    if after.safety_margin > before.safety_margin
        or max_in_flight_of(after) < max_in_flight_of(before)
    then
        return false;
    end if;
    if after.unlimited then
        return true;
    end if;
    if before.unlimited or old_shape <> new_shape then
        return false;
    end if;
    -- Null is no limit, the largest of all; with all four null nothing limits.
    if coalesce(after.limit_per_second, 2147483647) < coalesce(before.limit_per_second, 2147483647)
        or coalesce(after.limit_per_minute, 2147483647) < coalesce(before.limit_per_minute, 2147483647)
        or coalesce(after.limit_per_hour, 2147483647) < coalesce(before.limit_per_hour, 2147483647)
        or coalesce(after.limit_per_day, 2147483647) < coalesce(before.limit_per_day, 2147483647)
    then
        return false;
    end if;
    if old_shape = 'sliding_window' and before.burst is null and after.burst is null then
        return true;
    end if;
    -- A bucket is refilled by the shortest limit that is set: lifting that one
    -- refills it by a longer one, which is another shape.
    if (before.limit_per_second is null) <> (after.limit_per_second is null)
        or (before.limit_per_minute is null) <> (after.limit_per_minute is null)
        or (before.limit_per_hour is null) <> (after.limit_per_hour is null)
        or (before.limit_per_day is null) <> (after.limit_per_day is null)
    then
        return false;
    end if;
    -- No burst beside a window is no spacing; in a bucket it is one period's
    -- worth, which need not be more than what was there.
    if after.burst is null then
        return new_shape <> 'token_bucket' or before.burst is null
            or before.burst <= coalesce(
                after.limit_per_second, after.limit_per_minute,
                after.limit_per_hour, after.limit_per_day, 2147483647);
    end if;
    return before.burst is not null and after.burst >= before.burst;
end;
$$;

create table tiers (
    name text primary key,
    limit_per_second integer
        constraint tiers_check_limit_per_second check (limit_per_second between 0 and 1000000000),
    limit_per_minute integer
        constraint tiers_check_limit_per_minute check (limit_per_minute between 0 and 1000000000),
    limit_per_hour integer
        constraint tiers_check_limit_per_hour check (limit_per_hour between 0 and 1000000000),
    limit_per_day integer
        constraint tiers_check_limit_per_day check (limit_per_day between 0 and 1000000000),
    unlimited boolean not null default false
        constraint tiers_check_unlimited check (
            not unlimited
            or num_nonnulls(limit_per_second, limit_per_minute, limit_per_hour, limit_per_day) = 0
        ),
    burst integer
        constraint tiers_check_burst check (
            burst between 1 and 1000000000 and (shape is distinct from 'leaky_bucket' or burst = 1)
        ),
    shape text
        constraint tiers_check_shape check (
            shape in ('sliding_window', 'token_bucket', 'leaky_bucket')
        ),
    max_in_flight integer
        constraint tiers_check_max_in_flight check (max_in_flight between 1 and 1000000000)
);

insert into tiers (name, limit_per_second, burst, shape) values
    ('free', 2, 10, 'token_bucket'),
    ('standard', 10, 50, 'token_bucket'),
    ('enterprise', 100, 500, 'token_bucket');

create table tenants (
    id uuid primary key,
    name text not null,
    tier text not null references tiers (name),
    created_at timestamptz not null default clock_timestamp()
);

create index tenants_of_tier on tenants (tier);

-- The tenant that a single API key stands for.
insert into tenants (id, name, tier)
values ('00000000-0000-0000-0000-000000000001', 'default', 'standard');

-- Nothing but its owner's changes updates a destination's row: admission locks
-- it, and what admission writes is in `pacing`.
create table destinations (
    id uuid primary key,
    tenant_id uuid not null references tenants (id),
    name text not null default '',
    url text not null,
    event_types text[] not null default '{}',
    limit_per_second integer
        constraint destinations_check_limit_per_second
        check (limit_per_second between 0 and 1000000000),
    limit_per_minute integer
        constraint destinations_check_limit_per_minute
        check (limit_per_minute between 0 and 1000000000),
    limit_per_hour integer
        constraint destinations_check_limit_per_hour
        check (limit_per_hour between 0 and 1000000000),
    limit_per_day integer
        constraint destinations_check_limit_per_day
        check (limit_per_day between 0 and 1000000000),
    unlimited boolean not null default false
        constraint destinations_check_unlimited check (
            not unlimited
            or num_nonnulls(limit_per_second, limit_per_minute, limit_per_hour, limit_per_day) = 0
        ),
    burst integer
        constraint destinations_check_burst check (
            burst between 1 and 1000000000 and (shape is distinct from 'leaky_bucket' or burst = 1)
        ),
    shape text
        constraint destinations_check_shape check (
            shape in ('sliding_window', 'token_bucket', 'leaky_bucket')
        ),
    max_in_flight integer
        constraint destinations_check_max_in_flight check (max_in_flight between 1 and 1000000000),
    safety_margin double precision not null default 0
        -- NaN is larger than every number, so this refuses it as well.
        constraint destinations_check_safety_margin check (safety_margin between 0 and 1),
    state text not null default 'active'
        constraint destinations_check_state check (state in ('active', 'paused', 'disabled')),
    epoch bigint not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    deleted_at timestamptz,
    -- Of a deleted one: when nothing of it waited or was under way any more, so
    -- that the reaper need not look at it again.
    drained_at timestamptz
        constraint destinations_check_drained_at
        check (drained_at is null or deleted_at is not null)
);

create index destinations_of_tenant on destinations (tenant_id, id) where deleted_at is null;
create index destinations_deleted on destinations (deleted_at, id) where deleted_at is not null;
-- The few whose backlog has yet to be cancelled, those first that were deleted first.
create index destinations_to_drain on destinations (deleted_at, id)
    where deleted_at is not null and drained_at is null;

-- A change that has yet to be looked at; a later change is another version.
create table destination_marks (
    destination_id uuid primary key,
    version bigint not null
);

create sequence destination_mark_versions;

-- What was in force from when on, resolved against the tier.
create table limit_history (
    id bigint generated always as identity primary key,
    destination_id uuid not null,
    in_force_from timestamptz not null,
    limit_per_second integer,
    limit_per_minute integer,
    limit_per_hour integer,
    limit_per_day integer,
    unlimited boolean not null,
    burst integer,
    shape text,
    max_in_flight integer,
    safety_margin double precision not null,
    state text not null
);

create index limit_history_of_destination on limit_history (destination_id, in_force_from);

-- What admission remembers of a destination. Written under the destination's
-- lock, by changes of its limits and by admission, several times a second: room for updates in place.
create table pacing (
    destination_id uuid primary key,
    last_permit bigint not null default 0,
    meter_missing_micro bigint not null default 0,
    meter_as_of timestamptz,
    -- Of which epoch the meter is. Of another, the limits may have changed since:
    -- the starts before the change have to be counted too.
    meter_epoch bigint,
    looked_at timestamptz,
    -- 'infinity': not before a change of the limits, which sets it back.
    next_look_at timestamptz,
    -- First attempts up to this id have been admitted once.
    first_after bigint not null default 0,
    held_until timestamptz
) with (fillfactor = 50);

-- ---------------------------------------------------------------------------
-- Events and attempts.

create table events (
    id uuid primary key,
    tenant_id uuid not null,
    event_type text,
    content_type text not null,
    payload bytea not null,
    created_at timestamptz not null
);

create table attempts (
    id bigint generated always as identity primary key,
    event_id uuid not null references events (id),
    destination_id uuid not null references destinations (id),
    tenant_id uuid not null,
    try_number integer not null default 1,
    state text not null default 'waiting'
        constraint attempts_check_state check (
            state in (
                'waiting', 'admitted', 'started', 'succeeded', 'failed', 'unknown', 'not_sent',
                'cancelled', 'expired'
            )
        ),
    -- Null: a first attempt that was never admitted. Else when a retry is due,
    -- or the creation of one whose permit was returned.
    due_at timestamptz,
    permit bigint,
    epoch bigint,
    not_before timestamptz,
    deadline timestamptz,
    -- A coarse limit counts its start, so its outcome folds it.
    coarse boolean not null default false,
    -- Its start is in start_buckets.
    folded boolean not null default false,
    -- Its outcome makes room that somebody waits for.
    crowded boolean not null default false,
    worker_id uuid,
    created_at timestamptz not null default clock_timestamp(),
    admitted_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    delivery_latency interval generated always as (finished_at - created_at) stored,
    status integer,
    error text,
    response_body bytea,
    dead_letter boolean not null default false,
    constraint attempts_check_admitted check (
        state <> 'admitted'
        or num_nulls(permit, epoch, not_before, deadline) = 0
    ),
    constraint attempts_check_started_at check (
        (started_at is null) = (state in ('waiting', 'admitted', 'cancelled', 'expired'))
    )
) with (
    -- A busy ledger: dead versions are cleared and counted before they are many.
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);

-- The backlog: first attempts in the order that a cursor reads, and the others
-- by when they are due. What is admitted leaves its index.
--
-- `id + 0`, here and below: a statement that asks for it in this order cannot
-- be planned as a walk along the primary key, which looks cheap to a planner
-- whose statistics know few destinations, and reads everybody's backlog.
create index attempts_first on attempts (destination_id, (id + 0))
    where state = 'waiting' and due_at is null;
create index attempts_due on attempts (destination_id, due_at, id)
    where state = 'waiting' and due_at is not null;
create index attempts_admitted on attempts (destination_id) include (not_before, deadline)
    where state = 'admitted';
create index attempts_deadline on attempts (deadline) where state = 'admitted';
create index attempts_in_flight on attempts (destination_id) where state = 'started';
create index attempts_started on attempts (started_at) include (worker_id)
    where state = 'started';
-- Starts, for the windows. `folded` is in the key: admission reads the few that
-- are not folded, however large the limit and so the number of those that are.
create index attempts_starts on attempts (destination_id, folded, started_at desc, id desc)
    where started_at is not null;
create index attempts_of_event on attempts (event_id);
-- For people. By tenant first, so that no plan of admission can mistake it for
-- one of the indexes above, which hold only what waits.
create index attempts_of_tenant on attempts (tenant_id, destination_id, (id + 0));

-- Starts that coarse limits count, each start once and in all four periods.
-- Sharded so that workers seldom wait for each other.
create table start_buckets (
    destination_id uuid not null,
    period text not null
        constraint start_buckets_check_period
        check (period in ('second', 'minute', 'hour', 'day')),
    ends_at timestamptz not null,
    shard smallint not null,
    starts integer not null,
    primary key (destination_id, period, ends_at, shard)
) with (fillfactor = 70);

-- By micros(), so that no plan of admission can take it for the primary key.
create index start_buckets_by_age on start_buckets (period, micros(ends_at));

create table workers (
    id uuid primary key,
    places integer not null,
    seen_at timestamptz not null,
    retired boolean not null default false
) with (fillfactor = 50);

-- ---------------------------------------------------------------------------
-- Changes of limits. By trigger, so that a user's own SQL is as safe as ours.
--
-- The order of steps is the proof that a cut is in force from its time in
-- history on:
--   1. lock the destinations: no admission can begin (it skips locked rows),
--      and one that is in progress has committed when we have the lock;
--   2. in a later statement, with a snapshot that sees that admission, move
--      all their admitted rows back to waiting. The update waits for claims in
--      flight and rechecks their rows, so each was started before, or never
--      will be under its permit;
--   3. only then read the clock for limit_history.
-- Until the commit, the moved rows are locked and claims skip them.

-- The limits of the tier of a tenant. Locked against change until the end of
-- the transaction: a change of the tier that we do not see would not see our
-- destination either, and its history would be wrong.
create function tier_limits(of_tenant uuid) returns limit_settings
    language plpgsql volatile
as $$
declare
    found_tier limit_settings;
begin
    select t.limit_per_second, t.limit_per_minute, t.limit_per_hour, t.limit_per_day,
        t.unlimited, t.burst, t.shape, t.max_in_flight, 0::double precision
    into found_tier
    from tenants n join tiers t on t.name = n.tier
    where n.id = of_tenant
    for share of n, t;
    return found_tier;
end;
$$;

create function own_limits(d destinations) returns limit_settings
    language sql immutable parallel safe
    return row(
        d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day,
        d.unlimited, d.burst, d.shape, d.max_in_flight, d.safety_margin
    )::limit_settings;

-- Writes history, marks and a notification for destinations whose rows we have
-- locked or inserted. A deleted one takes no starts: it is disabled for good.
create function note_change(changed uuid[]) returns void
    language plpgsql volatile
as $$
begin
    insert into limit_history (
        destination_id, in_force_from, limit_per_second, limit_per_minute, limit_per_hour,
        limit_per_day, unlimited, burst, shape, max_in_flight, safety_margin, state
    )
    select d.id, clock_timestamp(), r.limit_per_second, r.limit_per_minute, r.limit_per_hour,
        r.limit_per_day, r.unlimited, r.burst, r.shape, r.max_in_flight, r.safety_margin,
        case when d.deleted_at is null then d.state else 'disabled' end
    from unnest(changed) as c (id)
    join destinations d on d.id = c.id
    cross join lateral resolved_limits(own_limits(d), tier_limits(d.tenant_id)) as r
    order by d.id;
end;
$$;

create function mark_changed(changed uuid[]) returns void
    language plpgsql volatile
as $$
begin
    insert into destination_marks (destination_id, version)
    select c.id, nextval('destination_mark_versions')
    from unnest(changed) as c (id)
    order by c.id
    on conflict (destination_id) do update set version = excluded.version;
    -- Whatever the last run waited for: the sweep finds it even if the wake that
    -- the mark stands for is lost.
    update pacing set next_look_at = null where destination_id = any (changed);
    -- A hint; the sweep reads the marks.
    notify paceline_changed;
end;
$$;

-- Later statements have to see what was committed before they began. Under
-- any stricter isolation they would see what was there when the transaction
-- began, and miss permits that were admitted since.
create function require_read_committed() returns void
    language plpgsql stable
as $$
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'limits can only be changed in a read committed transaction, this one is %',
            current_setting('transaction_isolation')
            using errcode = 'feature_not_supported',
                hint = 'begin with: begin isolation level read committed';
    end if;
end;
$$;

-- Step 1 for a destination's own row: Postgres has locked it before it calls a
-- row trigger. Decides whether the change revokes; the epoch says so to the
-- trigger below, and to permits that are still on their way.
create function destinations_before_update() returns trigger
    language plpgsql
as $$
declare
    tier limit_settings;
begin
    if own_limits(old) is not distinct from own_limits(new)
        and old.tenant_id = new.tenant_id
        and old.state = new.state
        and old.url = new.url
        and old.deleted_at is not distinct from new.deleted_at
        and old.epoch = new.epoch
    then
        return new;
    end if;
    perform require_read_committed();
    tier := tier_limits(new.tenant_id);
    if old.epoch = new.epoch
        and not (
            old.tenant_id = new.tenant_id
            and old.state = 'active' and new.state = 'active'
            and old.url = new.url
            and old.deleted_at is null and new.deleted_at is null
            and is_pure_raise(
                resolved_limits(own_limits(old), tier), resolved_limits(own_limits(new), tier))
        )
    then
        new.epoch := old.epoch + 1;
    end if;
    return new;
end;
$$;

create trigger destinations_before_update before update on destinations
    for each row execute function destinations_before_update();

-- Steps 2 and 3, once for all rows of the statement, each step a statement of
-- its own and so with a snapshot of its own. A user's session has no plan
-- settings of ours; reading the whole ledger to find a few permits would hold
-- the destination for long.
create function destinations_after_update() returns trigger
    language plpgsql
    set enable_seqscan = off
as $$
declare
    changed uuid[];
    revoked uuid[];
begin
    select
        array_agg(n.id order by n.id),
        array_agg(n.id order by n.id) filter (where n.epoch <> o.epoch)
    into changed, revoked
    from new_rows n join old_rows o on o.id = n.id
    where own_limits(o) is distinct from own_limits(n)
        or o.state <> n.state
        or o.url <> n.url
        or o.deleted_at is distinct from n.deleted_at
        or o.epoch <> n.epoch;
    if changed is null then
        return null;
    end if;
    if revoked is not null then
        -- Waits for claims in flight; the recheck leaves what they started.
        update attempts a
        set state = case when d.deleted_at is null then 'waiting' else 'cancelled' end,
            due_at = coalesce(a.due_at, a.created_at),
            permit = null, epoch = null, not_before = null, deadline = null
        from destinations d
        where d.id = any (revoked) and a.destination_id = d.id and a.state = 'admitted';
    end if;
    perform note_change(changed);
    perform mark_changed(changed);
    return null;
end;
$$;

create trigger destinations_after_update after update on destinations
    referencing old table as old_rows new table as new_rows
    for each statement execute function destinations_after_update();

create function destinations_after_insert() returns trigger
    language plpgsql
as $$
begin
    perform note_change(array(select n.id from new_rows n order by n.id));
    return null;
end;
$$;

create trigger destinations_after_insert after insert on destinations
    referencing new table as new_rows
    for each statement execute function destinations_after_insert();

-- One destination whose tier changes from `before` to `after`.
create type tier_change as (
    destination_id uuid,
    tier_before limit_settings,
    tier_after limit_settings
);

-- The same for destinations whose tier's limits changed: lock them all in id
-- order, then, in later statements, bump the epochs of those that have to give
-- up permits (their own trigger does the rest) and note the others.
create function tiers_changed(changes tier_change[]) returns void
    language plpgsql volatile
as $$
declare
    cut uuid[];
    raised uuid[];
begin
    perform d.id
    from destinations d
    where d.id in (select c.destination_id from unnest(changes) as c)
    order by d.id
    for no key update;

    select
        array_agg(d.id order by d.id) filter (where not is_pure_raise(r.before, r.after)),
        array_agg(d.id order by d.id) filter (where is_pure_raise(r.before, r.after))
    into cut, raised
    from unnest(changes) as c
    join destinations d on d.id = c.destination_id
    cross join lateral (
        select resolved_limits(own_limits(d), c.tier_before) as before,
            resolved_limits(own_limits(d), c.tier_after) as after
    ) r
    where r.before is distinct from r.after;

    if cut is not null then
        update destinations set epoch = epoch + 1 where id = any (cut);
    end if;
    if raised is not null then
        perform note_change(raised);
        perform mark_changed(raised);
    end if;
end;
$$;

create function tiers_after_update() returns trigger
    language plpgsql
as $$
declare
    changes tier_change[];
begin
    perform require_read_committed();
    select array_agg(row(d.id, c.before, c.after)::tier_change)
    into changes
    from (
        select n.name,
            row(o.limit_per_second, o.limit_per_minute, o.limit_per_hour, o.limit_per_day,
                o.unlimited, o.burst, o.shape, o.max_in_flight, 0)::limit_settings as before,
            row(n.limit_per_second, n.limit_per_minute, n.limit_per_hour, n.limit_per_day,
                n.unlimited, n.burst, n.shape, n.max_in_flight, 0)::limit_settings as after
        from new_rows n join old_rows o on o.name = n.name
    ) c
    join tenants t on t.tier = c.name
    join destinations d on d.tenant_id = t.id
    where c.before is distinct from c.after and d.deleted_at is null;
    if changes is not null then
        perform tiers_changed(changes);
    end if;
    return null;
end;
$$;

create trigger tiers_after_update after update on tiers
    referencing old table as old_rows new table as new_rows
    for each statement execute function tiers_after_update();

create function tenants_after_update() returns trigger
    language plpgsql
as $$
declare
    changes tier_change[];
begin
    if not exists (select from new_rows n join old_rows o on o.id = n.id where o.tier <> n.tier) then
        return null;
    end if;
    perform require_read_committed();
    -- Both tiers, against change while we compare them.
    perform t.name
    from tiers t
    where t.name in (select tier from old_rows union select tier from new_rows)
    order by t.name
    for share;

    select array_agg(row(
        d.id,
        row(b.limit_per_second, b.limit_per_minute, b.limit_per_hour, b.limit_per_day,
            b.unlimited, b.burst, b.shape, b.max_in_flight, 0)::limit_settings,
        row(a.limit_per_second, a.limit_per_minute, a.limit_per_hour, a.limit_per_day,
            a.unlimited, a.burst, a.shape, a.max_in_flight, 0)::limit_settings
    )::tier_change)
    into changes
    from new_rows n
    join old_rows o on o.id = n.id
    join tiers b on b.name = o.tier
    join tiers a on a.name = n.tier
    join destinations d on d.tenant_id = n.id
    where o.tier <> n.tier and d.deleted_at is null;
    if changes is not null then
        perform tiers_changed(changes);
    end if;
    return null;
end;
$$;

create trigger tenants_after_update after update on tenants
    referencing old table as old_rows new table as new_rows
    for each statement execute function tenants_after_update();

-- ---------------------------------------------------------------------------
-- The audit that anyone can run: how many attempts started in each calendar
-- second, and what was in force then. A bucket may start `burst` at once and
-- half a second's worth of slack more; every other shape its limit. Sliding
-- windows are judged by `paceline audit`.

create view starts_per_second as
select
    s.destination_id,
    s.second,
    s.starts,
    s.average_delivery_latency,
    l.limit_per_second,
    coalesce(s.starts > l.bound, false) as over
from (
    select destination_id, date_trunc('second', started_at) as second, count(*) as starts,
        avg(delivery_latency) as average_delivery_latency
    from attempts
    where started_at is not null
    group by destination_id, date_trunc('second', started_at)
) s
cross join lateral (
    -- The largest in force within that second: the entry that it began with,
    -- and those that came in it. Null, if one of them did not limit.
    select
        case when bool_or(h.limit_per_second is null) then null
            else max(h.limit_per_second) end as limit_per_second,
        case when bool_or(h.limit_per_second is null) then null
            else max(case h.shape
                when 'token_bucket' then
                    coalesce(h.burst, h.limit_per_second) + ceil(h.limit_per_second * 1.5)
                when 'leaky_bucket' then 1 + ceil(h.limit_per_second * 1.5)
                else h.limit_per_second
            end) end as bound
    from limit_history h
    where h.destination_id = s.destination_id
        and h.in_force_from < s.second + interval '1 second'
        and h.in_force_from >= coalesce(
            (
                select max(earlier.in_force_from) from limit_history earlier
                where earlier.destination_id = s.destination_id
                    and earlier.in_force_from <= s.second
            ),
            '-infinity'
        )
) l;
