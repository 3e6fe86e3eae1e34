-- Changes of limits. By trigger, so that a user's own SQL is as safe as ours.
--
-- The order of steps is the proof that a cut is in force from its time in
-- history on:
--   1. lock the destinations: no admission can be written (it skips locked rows,
--      and those that are not as it read them when we have committed), and one that
--      was has committed when we have the lock;
--   2. in a later statement, with a snapshot that sees that admission, move
--      all their admitted rows back to waiting. The update waits for claims in
--      flight and rechecks their rows, so each was started before, or never
--      will be under its permit;
--   3. only then read the clock for limit_history.
-- Until the commit, the moved rows are locked and claims skip them.

-- Keeps the tiers of these tenants, and what they say, from changing until the end of the
-- transaction. What they are is read in a later statement: of who has waited for a lock, a
-- join in the same statement sees the row of before, or none.
create function lock_tiers_of(of_tenants uuid[]) returns void
    language plpgsql volatile
as $$
begin
    perform n.id from tenants n where n.id = any (of_tenants) order by n.id for share;
    perform t.name from tiers t
    where t.name in (select n.tier from tenants n where n.id = any (of_tenants))
    order by t.name
    for share;
end;
$$;

-- The limits of a tier, without those that only a destination sets.
create function tier_limits(t tiers) returns limit_settings
    language sql immutable parallel safe
    return row(
        t.limit_per_second, t.limit_per_minute, t.limit_per_hour, t.limit_per_day,
        t.unlimited, t.burst, t.shape, t.max_in_flight, 0, null, null, null
    )::limit_settings;

create function own_limits(d destinations) returns limit_settings
    language sql immutable parallel safe
    return row(
        d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day,
        d.unlimited, d.burst, d.shape, d.max_in_flight, d.safety_margin,
        d.margin_cap, d.count, d.allowed_per_minute
    )::limit_settings;

-- The most that may be set for a destination: its tier's ceiling, and what it was granted
-- beyond that. Null: any number. The default tenant is the installation's own. A row, as a
-- table: those alone are planned with the statement that asks for them, and not in each run.
create function ceiling_of(d destinations, t tiers)
    returns table (
        per_second double precision, at_once integer, in_flight integer,
        batch_events integer, batch_bytes integer, age_seconds integer
    )
    language sql immutable parallel safe rows 1
begin atomic
    select
        case when is_bound and t.ceiling_per_second is not null
            then greatest(t.ceiling_per_second, d.granted_per_second) end,
        case when is_bound and t.ceiling_at_once is not null
            then greatest(t.ceiling_at_once, d.granted_at_once) end,
        case when is_bound and t.ceiling_in_flight is not null
            then greatest(t.ceiling_in_flight, d.granted_in_flight) end,
        case when is_bound and t.ceiling_batch_events is not null
            then greatest(t.ceiling_batch_events, d.granted_batch_events) end,
        case when is_bound and t.ceiling_batch_bytes is not null
            then greatest(t.ceiling_batch_bytes, d.granted_batch_bytes) end,
        -- Of this nobody is granted more.
        case when is_bound then t.ceiling_age_seconds end
    from (select d.tenant_id <> '00000000-0000-0000-0000-000000000001') as b (is_bound);
end;

-- Refuses limits of a destination's own that are above its ceiling: the same as the domain's
-- Ceiling::check; a test compares the two on random settings. What it inherits is the
-- tier's own.
create function check_ceiling(d destinations) returns void
    language plpgsql volatile
as $$
declare
    ceiling record;
    -- No rate limit: the largest that there is.
    any_number constant double precision := 1000000000;
    shortest integer := coalesce(
        d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day);
    long_run double precision := any_number;
    at_once double precision := any_number;
begin
    select t.name, c.* into ceiling
    from tenants n
    join tiers t on t.name = n.tier
    cross join lateral ceiling_of(d, t) c
    where n.id = d.tenant_id;
    if shortest is not null then
        long_run := least(
            d.limit_per_second::double precision,
            d.limit_per_minute / 60::double precision,
            d.limit_per_hour / 3600::double precision,
            d.limit_per_day / 86400::double precision);
        at_once := least(
            case
                when shortest = 0 then 0
                when d.shape = 'leaky_bucket' then 1
                when d.shape = 'token_bucket' then coalesce(d.burst, shortest)
                else least(shortest, d.burst)
            end,
            case when d.limit_per_second is not null then d.limit_per_minute end,
            case when coalesce(d.limit_per_second, d.limit_per_minute) is not null
                then d.limit_per_hour end,
            case when coalesce(d.limit_per_second, d.limit_per_minute, d.limit_per_hour)
                is not null then d.limit_per_day end);
    end if;
    if ((shortest is not null or d.unlimited)
            and (long_run > ceiling.per_second or at_once > ceiling.at_once))
        or d.max_in_flight > ceiling.in_flight
    then
        raise exception 'the limits of destination % are above the ceiling of its tier, %',
                d.id, ceiling.name
            using errcode = 'check_violation', table = 'destinations',
                constraint = 'destinations_check_limits',
                hint = 'An operator can grant it more: granted_per_second, granted_at_once and '
                    'granted_in_flight of its row.';
    end if;
end;
$$;

-- The same of batches (Ceiling::check_batches). Where no bytes are set the largest number
-- holds.
create function check_batch_ceiling(d destinations) returns void
    language plpgsql volatile
as $$
declare
    ceiling record;
begin
    if d.batch_max_events is null then
        return;
    end if;
    select t.name, c.* into ceiling
    from tenants n
    join tiers t on t.name = n.tier
    cross join lateral ceiling_of(d, t) c
    where n.id = d.tenant_id;
    if d.batch_max_events > ceiling.batch_events
        or coalesce(d.batch_max_bytes, 1000000) > ceiling.batch_bytes
    then
        raise exception 'the batches of destination % are above the ceiling of its tier, %',
                d.id, ceiling.name
            using errcode = 'check_violation', table = 'destinations',
                constraint = 'destinations_check_batches',
                hint = 'Where batch_max_bytes is null, 1000000 holds: set it. An operator can '
                    'grant it more: granted_batch_events and granted_batch_bytes of its row.';
    end if;
end;
$$;

-- How old events of a destination may become by its tier.
create function tier_age_of(d destinations) returns bigint
    language sql volatile
begin atomic
    select c.age_seconds * 1000::bigint
    from tenants n
    join tiers t on t.name = n.tier
    cross join lateral ceiling_of(d, t) c
    where n.id = d.tenant_id;
end;

-- Refuses an age of a destination's own that is above it (Ceiling::check_age).
create function check_age_ceiling(d destinations) returns void
    language plpgsql volatile
as $$
begin
    if d.max_age_ms > d.tier_age_ms then
        raise exception 'the age of the events of destination % is above the ceiling of its tier, '
                '% ms', d.id, d.tier_age_ms
            using errcode = 'check_violation', table = 'destinations',
                constraint = 'destinations_check_max_age_ms',
                hint = 'A tenant of another tier may have more.';
    end if;
end;
$$;

-- Notes the age of their tier in those destinations of these tenants that have another one,
-- and locks no others. The default tenant's have none.
create function tier_ages_changed(of_tenants uuid[]) returns void
    language plpgsql volatile
as $$
declare
    aged uuid[];
begin
    select array_agg(l.id)
    into aged
    from (
        select d.id
        from tenants n
        join tiers t on t.name = n.tier
        join destinations d on d.tenant_id = n.id
        where n.id = any (of_tenants) and n.id <> '00000000-0000-0000-0000-000000000001'
            and d.deleted_at is null
            and d.tier_age_ms is distinct from t.ceiling_age_seconds * 1000::bigint
        order by d.id
        for no key update of d
    ) l;
    update destinations d set tier_age_ms = t.ceiling_age_seconds * 1000::bigint
    from tenants n
    join tiers t on t.name = n.tier
    where d.id = any (aged) and n.id = d.tenant_id;
end;
$$;

-- Nobody else sets it: a null of a user's own would be no ceiling. By its name it comes before
-- the trigger that compares the destination's own age with it.
create function destinations_before_tier_age() returns trigger
    language plpgsql
as $$
begin
    new.tier_age_ms := old.tier_age_ms;
    return new;
end;
$$;

create trigger destinations_before_tier_age before update on destinations
    for each row when (old.tier_age_ms is distinct from new.tier_age_ms and pg_trigger_depth() = 0)
    execute function destinations_before_tier_age();

-- How many destinations a tenant may have: as its tier says, and as many as it was granted
-- beyond that. Null: any number.
create function most_destinations(of_tier integer, granted integer) returns integer
    language sql immutable parallel safe
    return case when of_tier is not null then greatest(of_tier, granted) end;

-- Refuses more destinations of a tenant than it may have, counting those deleted within
-- the last hour, along two indexes. The rows are there already. The default tenant's are the
-- installation's own: the API alone holds them to it.
create function check_room(of_tenant uuid) returns void
    language plpgsql volatile
    set enable_hashjoin = off
    set enable_nestloop = on
as $$
declare
    most integer;
begin
    select most_destinations(t.tenant_max_destinations, n.granted_destinations) into most
    from tenants n join tiers t on t.name = n.tier
    where n.id = of_tenant and n.id <> '00000000-0000-0000-0000-000000000001';
    if most is null then
        return;
    end if;
    if (
        select count(*) from (
            select from destinations d
            where d.tenant_id = of_tenant and d.deleted_at is null
            limit most::bigint + 1
        ) l
    ) + (
        select count(*) from (
            select from destinations d
            where d.tenant_id = of_tenant
                and d.deleted_at > clock_timestamp() - interval '1 hour'
            limit most::bigint + 1
        ) g
    ) > most then
        raise exception 'the tenant has as many destinations as its tier allows, counting those '
                'deleted within the last hour: delete some and wait, or ask for more with a '
                'limit request'
            using errcode = 'check_violation', table = 'destinations',
                constraint = 'destinations_check_tenant_max_destinations';
    end if;
end;
$$;

-- Writes history, marks and a notification for destinations whose rows we have
-- locked or inserted. A deleted one takes no starts: it is disabled for good.
--
-- A claim may be dated up to 25 ms ahead, to the permit's slot; until then nothing is sent,
-- so it is still in flight. A change of limits is dated after every claim before it: no
-- window of claims that begins with the change holds one. The callers have locked the
-- destinations, so nothing is admitted meanwhile, and of those that revoke nothing can be
-- claimed any more; and their tiers: a change of one that we do not see would not see our
-- destination either, and its history would be wrong.
create function note_change(changed uuid[]) returns void
    language plpgsql volatile
as $$
declare
    asked_at timestamptz := clock_timestamp();
    ahead interval;
begin
    select max(a.claimed_at) - asked_at
    into ahead
    from deliveries a
    where a.destination_id = any (changed) and a.permit is not null and a.state = 'started'
        and a.carried_by is null and a.claimed_at > asked_at;
    -- More than a head start is a clock that was set back, which is not waited for.
    if ahead > interval '0' then
        perform pg_sleep_for(least(ahead, interval '25 milliseconds'));
    end if;
    insert into limit_history (
        destination_id, in_force_from, limit_per_second, limit_per_minute, limit_per_hour,
        limit_per_day, unlimited, burst, shape, max_in_flight, safety_margin, margin_cap, count,
        allowed_per_minute, state, url
    )
    select d.id, clock_timestamp(), r.limit_per_second, r.limit_per_minute, r.limit_per_hour,
        r.limit_per_day, r.unlimited, r.burst, r.shape, r.max_in_flight, r.safety_margin,
        r.margin_cap, r.count, r.allowed_per_minute,
        case when d.deleted_at is null then d.state else 'disabled' end, d.url
    from unnest(changed) as c (id)
    join destinations d on d.id = c.id
    join tenants n on n.id = d.tenant_id
    join tiers t on t.name = n.tier
    cross join lateral resolved_limits(own_limits(d), tier_limits(t)) as r
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
    if row(old.tenant_id, old.batch_max_events, old.batch_max_bytes)
        is distinct from row(new.tenant_id, new.batch_max_events, new.batch_max_bytes)
    then
        perform check_batch_ceiling(new);
    end if;
    if old.tenant_id <> new.tenant_id or (old.deleted_at is not null and new.deleted_at is null)
    then
        perform lock_tiers_of(array[new.tenant_id]);
        new.tier_age_ms := tier_age_of(new);
    end if;
    if row(old.tenant_id, old.max_age_ms) is distinct from row(new.tenant_id, new.max_age_ms) then
        perform check_age_ceiling(new);
    end if;
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
    perform lock_tiers_of(array[new.tenant_id]);
    if old.tenant_id <> new.tenant_id
        or row(
            old.limit_per_second, old.limit_per_minute, old.limit_per_hour, old.limit_per_day,
            old.unlimited, old.burst, coalesce(old.shape, 'sliding_window'), old.max_in_flight
        ) is distinct from row(
            new.limit_per_second, new.limit_per_minute, new.limit_per_hour, new.limit_per_day,
            new.unlimited, new.burst, coalesce(new.shape, 'sliding_window'), new.max_in_flight
        )
    then
        perform check_ceiling(new);
    end if;
    tier := (
        select tier_limits(t) from tenants n join tiers t on t.name = n.tier
        where n.id = new.tenant_id
    );
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
create function destinations_changed(changed uuid[], revoked uuid[]) returns void
    language plpgsql volatile
    set enable_seqscan = off
    set enable_hashjoin = off
    set enable_nestloop = on
as $$
begin
    if revoked is not null then
        -- Waits for claims in flight; the recheck leaves what they started.
        with gone as (
            delete from deliveries a
            using destinations d
            where d.id = any (revoked) and d.deleted_at is not null
                and a.destination_id = d.id and a.permit is not null and a.carried_by is null
                and a.state = 'admitted'
            returning a.*
        )
        insert into ledger (
            id, event_id, destination_id, tenant_id, try_number, due_at, created_at,
            admitted_at, tries_before, expires_at, replay_id, payload_bytes, batch_limit, urgent,
            state
        )
        select id, event_id, destination_id, tenant_id, try_number, due_at, created_at,
            admitted_at, tries_before, expires_at, replay_id, payload_bytes, batch_limit,
            urgent, 'cancelled'
        from gone;
        update deliveries a
        set state = 'waiting', due_at = coalesce(a.due_at, a.created_at),
            permit = null, epoch = null, not_before = null, deadline = null
        where a.destination_id = any (revoked) and a.permit is not null and a.carried_by is null
            and a.state = 'admitted';
    end if;
    perform note_change(changed);
    perform mark_changed(changed);
end;
$$;

-- Which rows have changed. They are joined by hash, whatever the session says: a loop in a
-- loop, which is kept as the plan once a single row has changed, takes the square of ten
-- thousand rows when a tier changes.
create function destinations_after_update() returns trigger
    language plpgsql
    set enable_hashjoin = on
    set enable_nestloop = off
as $$
declare
    grown uuid[];
    changed uuid[];
    revoked uuid[];
begin
    select
        array_agg(distinct n.tenant_id) filter (
            where n.tenant_id <> o.tenant_id
                or (o.deleted_at is not null and n.deleted_at is null)
        ),
        array_agg(n.id order by n.id) filter (
            where own_limits(o) is distinct from own_limits(n)
                or o.state <> n.state
                or o.url <> n.url
                or o.deleted_at is distinct from n.deleted_at
                or o.epoch <> n.epoch
        ),
        array_agg(n.id order by n.id) filter (where o.epoch <> n.epoch)
    into grown, changed, revoked
    from new_rows n join old_rows o on o.id = n.id;
    if grown is not null then
        perform check_room(t.id) from unnest(grown) as t (id);
    end if;
    if changed is not null then
        perform destinations_changed(changed, revoked);
    end if;
    return null;
end;
$$;

create trigger destinations_after_update after update on destinations
    referencing old table as old_rows new table as new_rows
    for each statement execute function destinations_after_update();

create function destinations_before_insert() returns trigger
    language plpgsql
as $$
begin
    -- A change of the tier that we do not see would not see our destination either.
    perform lock_tiers_of(array[new.tenant_id]);
    new.tier_age_ms := tier_age_of(new);
    perform check_age_ceiling(new);
    return new;
end;
$$;

create trigger destinations_before_insert before insert on destinations
    for each row execute function destinations_before_insert();

create function destinations_after_insert() returns trigger
    language plpgsql
as $$
begin
    perform check_ceiling(n), check_batch_ceiling(n) from new_rows n;
    perform check_room(n.tenant_id) from (select distinct tenant_id from new_rows) n;
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
    aged uuid[];
begin
    perform require_read_committed();
    select array_agg(row(d.id, c.before, c.after)::tier_change)
    into changes
    from (
        select n.name, tier_limits(o) as before, tier_limits(n) as after
        from new_rows n join old_rows o on o.name = n.name
    ) c
    join tenants t on t.tier = c.name
    join destinations d on d.tenant_id = t.id
    where c.before is distinct from c.after and d.deleted_at is null;
    if changes is not null then
        perform tiers_changed(changes);
    end if;
    select array_agg(t.id) into aged
    from new_rows n
    join old_rows o on o.name = n.name
    join tenants t on t.tier = n.name
    where n.ceiling_age_seconds is distinct from o.ceiling_age_seconds;
    if aged is not null then
        perform tier_ages_changed(aged);
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
    aged uuid[];
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

    select array_agg(row(d.id, tier_limits(b), tier_limits(a))::tier_change)
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
    select array_agg(n.id) into aged
    from new_rows n
    join old_rows o on o.id = n.id
    join tiers b on b.name = o.tier
    join tiers a on a.name = n.tier
    where a.ceiling_age_seconds is distinct from b.ceiling_age_seconds;
    if aged is not null then
        perform tier_ages_changed(aged);
    end if;
    return null;
end;
$$;

create trigger tenants_after_update after update on tenants
    referencing old table as old_rows new table as new_rows
    for each statement execute function tenants_after_update();

-- Workers keep where requests go by the epoch. By its name it comes before the
-- trigger that decides what a change revokes, which then sees another epoch.
create function destinations_before_traces() returns trigger
    language plpgsql
as $$
begin
    new.epoch := greatest(new.epoch, old.epoch + 1);
    return new;
end;
$$;

create trigger destinations_before_traces before update on destinations
    for each row when (old.pass_traceparent <> new.pass_traceparent)
    execute function destinations_before_traces();

-- ---------------------------------------------------------------------------
-- Limit groups. Whoever joins or leaves gives its permits back: what starts from then on
-- was admitted under the new group's limit, and what started before counts for the old one.

-- By its name it comes before the trigger that decides what a change revokes, which then
-- sees another epoch. A deleted destination is no member.
create function destinations_before_group() returns trigger
    language plpgsql
as $$
begin
    if new.deleted_at is not null then
        new.limit_group := null;
    end if;
    if new.limit_group is distinct from old.limit_group or new.tenant_id <> old.tenant_id then
        new.epoch := greatest(new.epoch, old.epoch + 1);
    end if;
    return new;
end;
$$;

create trigger destinations_before_group before update on destinations
    for each row when (
        old.limit_group is distinct from new.limit_group
        or new.limit_group is not null
            and (new.deleted_at is not null or old.tenant_id <> new.tenant_id)
    )
    execute function destinations_before_group();

-- Writes down who joins. A run of a member reads what each of them uses, so there are 100 at
-- most, those that left within two days included (domain::limit_group). The group's row is
-- locked, or two that join at once would both find room.
create function join_groups(joining uuid[]) returns void
    language plpgsql volatile
    set enable_hashjoin = off
    set enable_nestloop = on
as $$
declare
    member record;
begin
    for member in
        select d.id, d.tenant_id, d.limit_group from destinations d
        where d.id = any (joining) and d.limit_group is not null
        order by d.tenant_id, d.limit_group, d.id
    loop
        perform from limit_groups g
        where g.tenant_id = member.tenant_id and g.name = member.limit_group
        for no key update;
        if (
            select count(distinct m.destination_id) from limit_group_members m
            where m.tenant_id = member.tenant_id and m.limit_group = member.limit_group
                and m.destination_id <> member.id
                and (m.left_at is null or m.left_at > clock_timestamp() - interval '2 days')
        ) >= 100
        then
            raise exception 'limit group % has 100 members, those that left within two days '
                'included, and may not have more', member.limit_group
                using errcode = 'check_violation', table = 'destinations',
                    constraint = 'destinations_check_limit_group';
        end if;
        insert into limit_group_members (tenant_id, limit_group, destination_id, joined_at)
        values (member.tenant_id, member.limit_group, member.id, clock_timestamp());
        -- Of those that left, the last thousand are enough for any audit.
        delete from limit_group_members where id in (
            select m.id from limit_group_members m
            where m.tenant_id = member.tenant_id and m.limit_group = member.limit_group
                and m.left_at <= clock_timestamp() - interval '2 days'
            order by m.id desc offset 1000
        );
        -- Nor does one that comes and goes leave more than a few rows: its newest says until
        -- when what it started counts, and runs read all of them.
        delete from limit_group_members where id in (
            select m.id from limit_group_members m
            where m.tenant_id = member.tenant_id and m.limit_group = member.limit_group
                and m.destination_id = member.id and m.left_at is not null
            order by m.id desc offset 20
        );
    end loop;
end;
$$;

-- By its name it comes after the trigger that revokes: the clock is read when nothing of
-- these can be claimed any more under what they were. Joined as that joins.
create function destinations_after_update_group() returns trigger
    language plpgsql
    set enable_hashjoin = on
    set enable_nestloop = off
as $$
declare
    changed uuid[];
begin
    select array_agg(n.id order by n.id)
    into changed
    from new_rows n join old_rows o on o.id = n.id
    where o.limit_group is distinct from n.limit_group
        or n.limit_group is not null and o.tenant_id <> n.tenant_id;
    if changed is null then
        return null;
    end if;
    update limit_group_members m set left_at = clock_timestamp()
    where m.destination_id = any (changed) and m.left_at is null;
    perform join_groups(changed);
    return null;
end;
$$;

create trigger destinations_after_update_group after update on destinations
    referencing old table as old_rows new table as new_rows
    for each statement execute function destinations_after_update_group();

create function destinations_after_insert_group() returns trigger
    language plpgsql
as $$
begin
    perform join_groups(array(select n.id from new_rows n where n.limit_group is not null));
    return null;
end;
$$;

create trigger destinations_after_insert_group after insert on destinations
    referencing new table as new_rows
    for each statement execute function destinations_after_insert_group();

create function note_group(g limit_groups, deleted boolean) returns void
    language plpgsql volatile
as $$
begin
    insert into limit_group_history (
        tenant_id, limit_group, in_force_from,
        limit_per_second, limit_per_minute, limit_per_hour, limit_per_day
    )
    select g.tenant_id, g.name, clock_timestamp(),
        case when not deleted then g.limit_per_second end,
        case when not deleted then g.limit_per_minute end,
        case when not deleted then g.limit_per_hour end,
        case when not deleted then g.limit_per_day end;
    delete from limit_group_history where id in (
        select h.id from limit_group_history h
        where h.tenant_id = g.tenant_id and h.limit_group = g.name
        order by h.id desc offset 1000
    );
end;
$$;

create function limit_groups_after_insert() returns trigger
    language plpgsql
as $$
begin
    perform note_group(new, false);
    return null;
end;
$$;

create trigger limit_groups_after_insert after insert on limit_groups
    for each row execute function limit_groups_after_insert();

create function limit_groups_after_delete() returns trigger
    language plpgsql
as $$
begin
    perform note_group(old, true);
    return null;
end;
$$;

create trigger limit_groups_after_delete after delete on limit_groups
    for each row execute function limit_groups_after_delete();

create function limit_groups_before_update() returns trigger
    language plpgsql
as $$
begin
    raise exception 'a limit group keeps its name'
        using errcode = 'check_violation', table = 'limit_groups',
            constraint = 'limit_groups_check_name';
end;
$$;

create trigger limit_groups_before_update before update on limit_groups
    for each row when (old.name <> new.name or old.tenant_id <> new.tenant_id)
    execute function limit_groups_before_update();

-- The group's row is locked: no member is admitted, and an admission that was under way has
-- committed. A cut then revokes as a cut of each member's own limit does, and is dated when
-- nothing can be claimed any more that the old limit allowed.
create function limit_groups_after_update() returns trigger
    language plpgsql
as $$
declare
    members uuid[];
    is_raise boolean;
begin
    if row(old.limit_per_second, old.limit_per_minute, old.limit_per_hour, old.limit_per_day)
        is not distinct from
        row(new.limit_per_second, new.limit_per_minute, new.limit_per_hour, new.limit_per_day)
    then
        return null;
    end if;
    perform require_read_committed();
    is_raise := coalesce(new.limit_per_second, 2147483647) >= coalesce(old.limit_per_second, 2147483647)
        and coalesce(new.limit_per_minute, 2147483647) >= coalesce(old.limit_per_minute, 2147483647)
        and coalesce(new.limit_per_hour, 2147483647) >= coalesce(old.limit_per_hour, 2147483647)
        and coalesce(new.limit_per_day, 2147483647) >= coalesce(old.limit_per_day, 2147483647);
    members := array(
        select d.id from destinations d
        where d.tenant_id = new.tenant_id and d.limit_group = new.name
        order by d.id
        for no key update
    );
    if is_raise then
        perform mark_changed(members);
    else
        update destinations d set epoch = d.epoch + 1 where d.id = any (members);
    end if;
    perform note_group(new, false);
    return null;
end;
$$;

create trigger limit_groups_after_update after update on limit_groups
    for each row execute function limit_groups_after_update();

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
    from starts
    where carried_by is null
    group by destination_id, date_trunc('second', started_at)
) s
cross join lateral (
    -- The largest in force within that second: the entry that it began with, and those
    -- that came in it. Null, if one of them did not limit. A change reaches what is sent
    -- up to half a second later: what had been claimed goes out.
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
                    and earlier.in_force_from <= s.second - interval '500 milliseconds'
            ),
            '-infinity'
        )
) l;

-- The same of limit groups: what destinations claimed while they were members, in each
-- calendar second, and the largest limit of the group in force within it.
create view group_starts_per_second as
select
    s.tenant_id,
    s.limit_group,
    s.second,
    s.starts,
    l.limit_per_second,
    coalesce(s.starts > l.limit_per_second, false) as over
from (
    select m.tenant_id, m.limit_group, date_trunc('second', a.started_at) as second,
        count(*) as starts
    from limit_group_members m
    join starts a on a.destination_id = m.destination_id and a.claimed_at >= m.joined_at
        and (m.left_at is null or a.claimed_at <= m.left_at)
    where a.carried_by is null
    group by m.tenant_id, m.limit_group, date_trunc('second', a.started_at)
) s
cross join lateral (
    select
        case when bool_or(h.limit_per_second is null) then null
            else max(h.limit_per_second) end as limit_per_second
    from limit_group_history h
    where h.tenant_id = s.tenant_id and h.limit_group = s.limit_group
        and h.in_force_from < s.second + interval '1 second'
        and h.in_force_from >= coalesce(
            (
                select max(earlier.in_force_from) from limit_group_history earlier
                where earlier.tenant_id = s.tenant_id and earlier.limit_group = s.limit_group
                    and earlier.in_force_from <= s.second - interval '500 milliseconds'
            ),
            '-infinity'
        )
) l;
