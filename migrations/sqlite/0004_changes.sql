-- Changes of limits. By trigger, so that a user's own SQL is as safe as ours.
--
-- SQLite has one writer at a time: while the change is open nothing is admitted
-- and nothing starts, and it sees every start before it. So it is in force from
-- its own time on, but for what follows, whatever transaction it is part of.
--
-- But `now` has milliseconds here and starts have microseconds. A cut must not
-- be in history before a start that was made under the old limit, so its time
-- is rounded up; and nothing of the destination starts until then
-- (`held_until`), or what the same change allows more of would begin before its
-- history. A pure raise is rounded down.
--
-- Nor must it be in history before a start that was claimed ahead of its slot, which is dated
-- to it and not sent until then; and no later change, a raise included, before one that was
-- dated so, or history would end with the earlier one. A date that is more than a head start
-- ahead is of a clock that was set back since, and is not waited for.

create view store_clock as
select cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000 as now;

-- When a change that revokes is in force.
create view changes_begin as
select d.id as destination_id,
    max(c.now + 1000, coalesce(min(c.now + 26000, (
        select max(a.claimed_at) + 1 from deliveries a indexed by deliveries_held
        where a.destination_id = d.id and a.permit is not null and a.carried_by is null
            and a.state = 'started' and a.claimed_at > c.now
    )), 0)) as begins
from destinations d, store_clock c;

-- What is in force: the same as the domain's LimitSettings::or_tier. A deleted
-- destination takes no starts: it is disabled for good.
create view effective_limits as
select
    d.id as destination_id,
    d.tenant_id,
    n.tier,
    d.deleted_at,
    iif(d.inherits, t.limit_per_second, d.limit_per_second) as limit_per_second,
    iif(d.inherits, t.limit_per_minute, d.limit_per_minute) as limit_per_minute,
    iif(d.inherits, t.limit_per_hour, d.limit_per_hour) as limit_per_hour,
    iif(d.inherits, t.limit_per_day, d.limit_per_day) as limit_per_day,
    iif(d.inherits, t.unlimited, d.unlimited) as unlimited,
    iif(d.inherits, t.burst, d.burst) as burst,
    iif(d.inherits, t.shape, d.shape) as shape,
    coalesce(d.max_in_flight, t.max_in_flight) as max_in_flight,
    d.safety_margin,
    d.margin_cap,
    d.count,
    d.allowed_per_minute,
    iif(d.deleted_at is null, d.state, 'disabled') as state
from (
    select *,
        unlimited = 0
        and coalesce(limit_per_second, limit_per_minute, limit_per_hour, limit_per_day) is null
        as inherits
    from destinations
) d
join tenants n on n.id = d.tenant_id
join tiers t on t.name = n.tier;

-- The most that may be set for a destination: its tier's ceiling, and what it was granted
-- beyond that. Null: any number. The default tenant is the installation's own.
create view ceilings as
select
    d.id as destination_id,
    iif(d.is_bound, max(t.ceiling_per_second, coalesce(d.granted_per_second, 0)), null)
        as per_second,
    iif(d.is_bound, max(t.ceiling_at_once, coalesce(d.granted_at_once, 0)), null) as at_once,
    iif(d.is_bound, max(t.ceiling_in_flight, coalesce(d.granted_in_flight, 0)), null)
        as in_flight,
    iif(d.is_bound, max(t.ceiling_batch_events, coalesce(d.granted_batch_events, 0)), null)
        as batch_events,
    iif(d.is_bound, max(t.ceiling_batch_bytes, coalesce(d.granted_batch_bytes, 0)), null)
        as batch_bytes,
    -- Of this nobody is granted more.
    iif(d.is_bound, t.ceiling_age_seconds, null) as age_seconds
from (
    select *, tenant_id <> '00000000-0000-0000-0000-000000000001' as is_bound from destinations
) d
join tenants n on n.id = d.tenant_id
join tiers t on t.name = n.tier;

-- Destinations whose own limits are above their ceiling: the same as the domain's
-- Ceiling::check; a test compares the two on random settings. What a destination inherits is
-- the tier's own. No rate limit is the largest that there is.
create view above_ceiling as
select d.id as destination_id
from (
    select *,
        coalesce(limit_per_second, limit_per_minute, limit_per_hour, limit_per_day) as shortest
    from destinations
) d
join ceilings c on c.destination_id = d.id
where (
        (d.shortest is not null or d.unlimited = 1)
        and (
            min(
                coalesce(d.limit_per_second, 1e9),
                coalesce(d.limit_per_minute / 60.0, 1e9),
                coalesce(d.limit_per_hour / 3600.0, 1e9),
                coalesce(d.limit_per_day / 86400.0, 1e9)
            ) > c.per_second
            or min(
                case
                    when d.shortest is null then 1e9
                    when d.shortest = 0 then 0
                    when d.shape is 'leaky_bucket' then 1
                    when d.shape is 'token_bucket' then coalesce(d.burst, d.shortest)
                    else min(d.shortest, coalesce(d.burst, d.shortest))
                end,
                iif(d.limit_per_second is null, 1e9, coalesce(d.limit_per_minute, 1e9)),
                iif(
                    coalesce(d.limit_per_second, d.limit_per_minute) is null,
                    1e9, coalesce(d.limit_per_hour, 1e9)
                ),
                iif(
                    coalesce(d.limit_per_second, d.limit_per_minute, d.limit_per_hour) is null,
                    1e9, coalesce(d.limit_per_day, 1e9)
                )
            ) > c.at_once
        )
    )
    or d.max_in_flight > c.in_flight;

-- By whatever way they are set.
create trigger destinations_under_ceiling
after update of tenant_id, limit_per_second, limit_per_minute, limit_per_hour, limit_per_day,
    unlimited, burst, shape, max_in_flight on destinations
when exists (select 1 from above_ceiling where destination_id = new.id) and (
    old.tenant_id <> new.tenant_id
    or old.limit_per_second is not new.limit_per_second
    or old.limit_per_minute is not new.limit_per_minute
    or old.limit_per_hour is not new.limit_per_hour
    or old.limit_per_day is not new.limit_per_day
    or old.unlimited <> new.unlimited
    or old.burst is not new.burst
    or coalesce(old.shape, 'sliding_window') <> coalesce(new.shape, 'sliding_window')
    or old.max_in_flight is not new.max_in_flight
)
begin
    select raise(abort, 'above the ceiling of its tier (granted_per_second, granted_at_once and granted_in_flight of its row raise it): CHECK constraint failed: destinations_check_limits');
end;

create trigger destinations_inserted_under_ceiling after insert on destinations
when exists (select 1 from above_ceiling where destination_id = new.id)
begin
    select raise(abort, 'above the ceiling of its tier (granted_per_second, granted_at_once and granted_in_flight of its row raise it): CHECK constraint failed: destinations_check_limits');
end;

-- The same of batches (Ceiling::check_batches). Where no bytes are set the largest number
-- holds.
create view batches_above_ceiling as
select d.id as destination_id
from destinations d
join ceilings c on c.destination_id = d.id
where d.batch_max_events is not null
    and (
        d.batch_max_events > c.batch_events
        or coalesce(d.batch_max_bytes, 1000000) > c.batch_bytes
    );

create trigger destinations_batches_under_ceiling
after update of tenant_id, batch_max_events, batch_max_bytes on destinations
when exists (select 1 from batches_above_ceiling where destination_id = new.id) and (
    old.tenant_id <> new.tenant_id
    or old.batch_max_events is not new.batch_max_events
    or old.batch_max_bytes is not new.batch_max_bytes
)
begin
    select raise(abort, 'batches above the ceiling of its tier (where batch_max_bytes is null, 1000000 holds: set it; granted_batch_events and granted_batch_bytes of its row raise it): CHECK constraint failed: destinations_check_batches');
end;

create trigger destinations_inserted_batches_under_ceiling after insert on destinations
when exists (select 1 from batches_above_ceiling where destination_id = new.id)
begin
    select raise(abort, 'batches above the ceiling of its tier (where batch_max_bytes is null, 1000000 holds: set it; granted_batch_events and granted_batch_bytes of its row raise it): CHECK constraint failed: destinations_check_batches');
end;

-- The same of how old its events may become (Ceiling::check_age).
create trigger destinations_age_under_ceiling
after update of tenant_id, max_age_ms on destinations
when (old.tenant_id <> new.tenant_id or old.max_age_ms is not new.max_age_ms)
    and new.max_age_ms > (
        select c.age_seconds * 1000 from ceilings c where c.destination_id = new.id
    )
begin
    select raise(abort, 'the age of its events is above the ceiling of its tier: CHECK constraint failed: destinations_check_max_age_ms');
end;

create trigger destinations_inserted_age_under_ceiling after insert on destinations
when new.max_age_ms > (
    select c.age_seconds * 1000 from ceilings c where c.destination_id = new.id
)
begin
    select raise(abort, 'the age of its events is above the ceiling of its tier: CHECK constraint failed: destinations_check_max_age_ms');
end;

-- Destinations in which another age is noted than their tier says. To update one here is to
-- note it.
create view tier_age_changes as
select d.id as destination_id, d.tenant_id, d.tier_age_ms, d.deleted_at,
    c.age_seconds * 1000 as age_ms
from destinations d
join ceilings c on c.destination_id = d.id
where d.tier_age_ms is not c.age_seconds * 1000;

create trigger tier_age_changes_update instead of update on tier_age_changes
begin
    update destinations set tier_age_ms = new.tier_age_ms where id = new.destination_id;
end;

create trigger destinations_inserted_tier_age after insert on destinations
begin
    update tier_age_changes set tier_age_ms = age_ms where destination_id = new.id;
end;

-- By whoever it is set: a null of a user's own would be no ceiling.
create trigger destinations_tier_age
after update of tenant_id, deleted_at, tier_age_ms on destinations
begin
    update tier_age_changes set tier_age_ms = age_ms where destination_id = new.id;
end;

create trigger tiers_age after update of ceiling_age_seconds on tiers
when old.ceiling_age_seconds is not new.ceiling_age_seconds
begin
    update tier_age_changes set tier_age_ms = age_ms
    where deleted_at is null and tenant_id in (select id from tenants where tier = new.name);
end;

create trigger tenants_age after update of tier on tenants
when old.tier is not new.tier
begin
    update tier_age_changes set tier_age_ms = age_ms
    where deleted_at is null and tenant_id = new.id;
end;

-- How many destinations a tenant may have: as its tier says, and as many as it was granted
-- beyond that. Null: any number.
create view most_destinations as
select
    n.id as tenant_id,
    max(t.tenant_max_destinations, coalesce(n.granted_destinations, 0)) as most
from tenants n join tiers t on t.name = n.tier;

-- No more destinations of a tenant than it may have, counting those deleted within the
-- last hour. The default tenant's are the installation's own: the API alone holds them to it.
create view tenants_without_room as
select m.tenant_id
from most_destinations m
where m.tenant_id <> '00000000-0000-0000-0000-000000000001' and m.most is not null
    and (
        select count(*) from destinations d indexed by destinations_of_tenant
        where d.tenant_id = m.tenant_id and d.deleted_at is null
    ) + (
        select count(*) from destinations d indexed by destinations_deleted_of_tenant
        where d.tenant_id = m.tenant_id and d.deleted_at is not null
            and d.deleted_at > (select now - 3600000000 from store_clock)
    ) > m.most;

create trigger destinations_inserted_have_room after insert on destinations
when exists (select 1 from tenants_without_room where tenant_id = new.tenant_id)
begin
    select raise(abort, 'the tenant has as many destinations as its tier allows, counting those deleted within the last hour: delete some and wait, or ask for more with a limit request: CHECK constraint failed: destinations_check_tenant_max_destinations');
end;

create trigger destinations_moved_have_room after update of tenant_id, deleted_at on destinations
when (old.tenant_id <> new.tenant_id or (old.deleted_at is not null and new.deleted_at is null))
    and exists (select 1 from tenants_without_room where tenant_id = new.tenant_id)
begin
    select raise(abort, 'the tenant has as many destinations as its tier allows, counting those deleted within the last hour: delete some and wait, or ask for more with a limit request: CHECK constraint failed: destinations_check_tenant_max_destinations');
end;

-- Destinations whose limits are not what their history says last, and whether
-- that revokes: whether not everything that was allowed is allowed still. Says
-- yes where it is not sure: a revocation costs a moment, a missing one would
-- break a limit. A bucket is refilled by the shortest limit that is set, so
-- lifting that one is another shape.
create view limit_changes as
select
    e.destination_id,
    e.tenant_id,
    e.tier,
    e.deleted_at,
    (
        h.state = 'active' and e.state = 'active'
        -- Who counts something else allows other things.
        and coalesce(e.count, 'start') = coalesce(h.count, 'start')
        and coalesce(e.margin_cap, 0.01) <= coalesce(h.margin_cap, 0.01)
        and (e.allowed_per_minute is null or e.allowed_per_minute >= h.allowed_per_minute)
        -- Null is measured, and may be larger or smaller than one that is set.
        and (
            e.safety_margin is h.safety_margin
            or coalesce(e.safety_margin, 1) <= coalesce(h.safety_margin, 0)
        )
        and coalesce(e.max_in_flight, max(50, iif(
            coalesce(e.limit_per_second, e.limit_per_minute, e.limit_per_hour, e.limit_per_day) is null,
            0,
            cast(min(
                coalesce(e.limit_per_second, 1e12),
                coalesce(e.limit_per_minute / 60.0, 1e12),
                coalesce(e.limit_per_hour / 3600.0, 1e12),
                coalesce(e.limit_per_day / 86400.0, 1e12)
            ) / 4.0 as integer)
        )))
        >= coalesce(h.max_in_flight, max(50, iif(
            coalesce(h.limit_per_second, h.limit_per_minute, h.limit_per_hour, h.limit_per_day) is null,
            0,
            cast(min(
                coalesce(h.limit_per_second, 1e12),
                coalesce(h.limit_per_minute / 60.0, 1e12),
                coalesce(h.limit_per_hour / 3600.0, 1e12),
                coalesce(h.limit_per_day / 86400.0, 1e12)
            ) / 4.0 as integer)
        )))
        and (e.unlimited or (
            not h.unlimited
            and coalesce(e.shape, 'sliding_window') = coalesce(h.shape, 'sliding_window')
            and (e.limit_per_second is null or e.limit_per_second >= h.limit_per_second)
            and (e.limit_per_minute is null or e.limit_per_minute >= h.limit_per_minute)
            and (e.limit_per_hour is null or e.limit_per_hour >= h.limit_per_hour)
            and (e.limit_per_day is null or e.limit_per_day >= h.limit_per_day)
            and (
                (coalesce(e.shape, 'sliding_window') = 'sliding_window'
                    and e.burst is null and h.burst is null)
                or (
                    case
                        when e.burst is not null then h.burst is not null and e.burst >= h.burst
                        when e.shape is not 'token_bucket' or h.burst is null then true
                        else h.burst <= coalesce(
                            e.limit_per_second, e.limit_per_minute,
                            e.limit_per_hour, e.limit_per_day, 1000000000)
                    end
                    and (h.limit_per_second is null) = (e.limit_per_second is null)
                    and (h.limit_per_minute is null) = (e.limit_per_minute is null)
                    and (h.limit_per_hour is null) = (e.limit_per_hour is null)
                    and (h.limit_per_day is null) = (e.limit_per_day is null)
                )
            )
        ))
    ) is not true as revokes
from effective_limits e
join limit_history h on h.id = (
    select max(last.id) from limit_history last where last.destination_id = e.destination_id
)
where e.limit_per_second is not h.limit_per_second
    or e.limit_per_minute is not h.limit_per_minute
    or e.limit_per_hour is not h.limit_per_hour
    or e.limit_per_day is not h.limit_per_day
    or e.unlimited is not h.unlimited
    or e.burst is not h.burst
    or e.shape is not h.shape
    or e.max_in_flight is not h.max_in_flight
    or e.safety_margin is not h.safety_margin
    or e.margin_cap is not h.margin_cap
    or e.count is not h.count
    or e.allowed_per_minute is not h.allowed_per_minute
    or e.state is not h.state;

-- To insert a destination here is to carry out its change: revoke, mark, write
-- history.
create trigger limit_changes_insert instead of insert on limit_changes
begin
    update destinations set epoch = epoch + 1
    where id = new.destination_id and new.revokes;

    -- A statement in a trigger cannot name its index but in a query of its own; the wrong
    -- one would read the destination's whole backlog under the lock.
    insert into ledger (
        id, event_id, destination_id, tenant_id, try_number, due_at, created_at, admitted_at,
        tries_before, expires_at, replay_id, payload_bytes, batch_limit, urgent, state
    )
    select id, event_id, destination_id, tenant_id, try_number, due_at, created_at, admitted_at,
        tries_before, expires_at, replay_id, payload_bytes, batch_limit, urgent, 'cancelled'
    from deliveries indexed by deliveries_held
    where new.revokes and new.deleted_at is not null and destination_id = new.destination_id
        and state = 'admitted' and permit is not null and carried_by is null;

    delete from deliveries where new.revokes and new.deleted_at is not null and id in (
        select id from deliveries indexed by deliveries_held
        where destination_id = new.destination_id and state = 'admitted'
            and permit is not null and carried_by is null
    );

    update deliveries
    set state = 'waiting', due_at = coalesce(due_at, created_at),
        permit = null, epoch = null, not_before = null, deadline = null
    where new.revokes and id in (
        select id from deliveries indexed by deliveries_held
        where destination_id = new.destination_id and state = 'admitted'
            and permit is not null and carried_by is null
    );

    insert into pacing (destination_id, held_until)
    select destination_id, begins from changes_begin
    where destination_id = new.destination_id and new.revokes
    on conflict (destination_id) do update
    set held_until = max(coalesce(held_until, 0), excluded.held_until);

    -- Whatever the last run waited for: the sweep finds it even if the wake that
    -- the mark stands for is lost.
    update pacing set next_look_at = null where destination_id = new.destination_id;

    insert into limit_history (
        destination_id, in_force_from,
        limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited, burst, shape,
        max_in_flight, safety_margin, margin_cap, count, allowed_per_minute, state, url
    )
    select destination_id,
        max(
            iif(
                new.revokes,
                (select begins from changes_begin where destination_id = new.destination_id),
                c.now
            ),
            coalesce(min(c.now + 26000, (
                select h.in_force_from from limit_history h
                where h.destination_id = new.destination_id
                order by h.id desc limit 1
            )), 0)
        ),
        limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited, burst, shape,
        max_in_flight, safety_margin, margin_cap, count, allowed_per_minute, state,
        (select d.url from destinations d where d.id = new.destination_id)
    from effective_limits, store_clock c
    where destination_id = new.destination_id;

    -- History's ids never repeat, so neither do versions.
    insert into destination_marks (destination_id, version)
    select new.destination_id, max(id) from limit_history where true
    on conflict (destination_id) do update set version = excluded.version;
end;

create trigger destinations_after_update
after update of
    tenant_id, url, limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited,
    burst, shape, max_in_flight, safety_margin, margin_cap, count, allowed_per_minute, state,
    deleted_at
on destinations
when old.url is not new.url
    or old.tenant_id is not new.tenant_id
    or old.deleted_at is not new.deleted_at
    or exists (select 1 from limit_changes where destination_id = new.id)
begin
    insert into limit_changes (destination_id, deleted_at, revokes)
    values (
        new.id,
        new.deleted_at,
        old.url is not new.url
        or old.tenant_id is not new.tenant_id
        or old.deleted_at is not new.deleted_at
        or exists (select 1 from limit_changes where destination_id = new.id and revokes)
    );
end;

create trigger destinations_after_insert after insert on destinations
begin
    insert into limit_history (
        destination_id, in_force_from,
        limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited, burst, shape,
        max_in_flight, safety_margin, margin_cap, count, allowed_per_minute, state, url
    )
    select destination_id, c.now,
        limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited, burst, shape,
        max_in_flight, safety_margin, margin_cap, count, allowed_per_minute, state, new.url
    from effective_limits, store_clock c
    where destination_id = new.id;
end;

create trigger tiers_after_update after update on tiers
begin
    insert into limit_changes (destination_id, deleted_at, revokes)
    select destination_id, deleted_at, revokes
    from limit_changes
    where tier = new.name and deleted_at is null;
end;

create trigger tenants_after_update after update of tier on tenants
when old.tier is not new.tier
begin
    insert into limit_changes (destination_id, deleted_at, revokes)
    select destination_id, deleted_at, revokes
    from limit_changes
    where tenant_id = new.id and deleted_at is null;
end;

-- Workers keep where requests go by the epoch.
create trigger destinations_after_traces after update of pass_traceparent on destinations
when old.pass_traceparent <> new.pass_traceparent
begin
    insert into limit_changes (destination_id, deleted_at, revokes)
    values (new.id, new.deleted_at, 1);
end;

-- ---------------------------------------------------------------------------
-- Limit groups. Whoever joins or leaves gives its permits back: what starts from then on
-- was admitted under the new group's limit, and what started before counts for the old one.

create trigger destinations_group_exists before update of tenant_id, limit_group on destinations
when new.limit_group is not null and not exists (
    select 1 from limit_groups where tenant_id = new.tenant_id and name = new.limit_group
)
begin
    select raise(abort, 'no such limit group: CHECK constraint failed: destinations_check_limit_group');
end;

create trigger destinations_inserted_group_exists before insert on destinations
when new.limit_group is not null and not exists (
    select 1 from limit_groups where tenant_id = new.tenant_id and name = new.limit_group
)
begin
    select raise(abort, 'no such limit group: CHECK constraint failed: destinations_check_limit_group');
end;

-- A run of a member reads what each of them uses, so there are 100 at most, those that left
-- within two days included (domain::limit_group).
create trigger limit_group_members_bound before insert on limit_group_members
when (
    select count(distinct m.destination_id)
    from limit_group_members m, store_clock c
    where m.tenant_id = new.tenant_id and m.limit_group = new.limit_group
        and m.destination_id <> new.destination_id
        and (m.left_at is null or m.left_at > c.now - 172800000000)
) >= 100
begin
    select raise(abort, 'a limit group has 100 members at most, those that left within two days included: CHECK constraint failed: destinations_check_limit_group');
end;

-- Of those that left, the last thousand are enough for any audit.
create trigger limit_group_members_trim after insert on limit_group_members
begin
    delete from limit_group_members where id in (
        select m.id from limit_group_members m, store_clock c
        where m.tenant_id = new.tenant_id and m.limit_group = new.limit_group
            and m.left_at <= c.now - 172800000000
        order by m.id desc limit -1 offset 1000
    );
    -- Nor does one that comes and goes leave more than a few rows: its newest says until
    -- when what it started counts, and runs read all of them.
    delete from limit_group_members where id in (
        select m.id from limit_group_members m
        where m.tenant_id = new.tenant_id and m.limit_group = new.limit_group
            and m.destination_id = new.destination_id and m.left_at is not null
        order by m.id desc limit -1 offset 20
    );
end;

create trigger destinations_after_insert_group after insert on destinations
when new.limit_group is not null
begin
    insert into limit_group_members (tenant_id, limit_group, destination_id, joined_at)
    select new.tenant_id, new.limit_group, new.id, c.now from store_clock c;
end;

create trigger destinations_after_group after update of tenant_id, limit_group on destinations
when old.limit_group is not new.limit_group
    or new.limit_group is not null and old.tenant_id is not new.tenant_id
begin
    insert into limit_changes (destination_id, deleted_at, revokes)
    values (new.id, new.deleted_at, 1);
    -- Nothing of it starts before then (`held_until`).
    update limit_group_members
    set left_at = (select begins from changes_begin where destination_id = new.id)
    where destination_id = new.id and left_at is null;
    insert into limit_group_members (tenant_id, limit_group, destination_id, joined_at)
    select new.tenant_id, new.limit_group, new.id, begins from changes_begin
    where destination_id = new.id and new.limit_group is not null;
end;

-- A deleted destination is no member.
create trigger destinations_deleted_leave after update of deleted_at on destinations
when new.deleted_at is not null and new.limit_group is not null
begin
    update destinations set limit_group = null where id = new.id;
end;

create trigger limit_groups_keep_their_name before update of tenant_id, name on limit_groups
when old.tenant_id <> new.tenant_id or old.name <> new.name
begin
    select raise(abort, 'a limit group keeps its name: CHECK constraint failed: limit_groups_check_name');
end;

create trigger limit_groups_keep_their_members before delete on limit_groups
when exists (
    select 1 from destinations where tenant_id = old.tenant_id and limit_group = old.name
)
begin
    select raise(abort, 'the limit group has members: CHECK constraint failed: limit_groups_check_members');
end;

-- A row that takes another's place would change a group with members and tell nobody.
create trigger limit_groups_replaced after insert on limit_groups
when exists (
    select 1 from destinations where tenant_id = new.tenant_id and limit_group = new.name
)
begin
    select raise(abort, 'the limit group has members, update it: CHECK constraint failed: limit_groups_check_members');
end;

create trigger limit_groups_after_insert after insert on limit_groups
begin
    insert into limit_group_history (
        tenant_id, limit_group, in_force_from,
        limit_per_second, limit_per_minute, limit_per_hour, limit_per_day
    )
    select new.tenant_id, new.name,
        max(
            c.now,
            coalesce(min(c.now + 26000, (
                select max(m.left_at) from limit_group_members m
                where m.tenant_id = new.tenant_id and m.limit_group = new.name
                    and m.left_at > c.now
            )), 0),
            coalesce(min(c.now + 26000, (
                select h.in_force_from from limit_group_history h
                where h.tenant_id = new.tenant_id and h.limit_group = new.name
                order by h.id desc limit 1
            )), 0)
        ),
        new.limit_per_second, new.limit_per_minute, new.limit_per_hour, new.limit_per_day
    from store_clock c;
end;

-- A cut revokes what its members have out; see limit_changes. What started before its member
-- left is the group's too.
create trigger limit_groups_after_update
after update of limit_per_second, limit_per_minute, limit_per_hour, limit_per_day on limit_groups
when old.limit_per_second is not new.limit_per_second
    or old.limit_per_minute is not new.limit_per_minute
    or old.limit_per_hour is not new.limit_per_hour
    or old.limit_per_day is not new.limit_per_day
begin
    insert into limit_group_history (
        tenant_id, limit_group, in_force_from,
        limit_per_second, limit_per_minute, limit_per_hour, limit_per_day
    )
    select new.tenant_id, new.name,
        max(
            iif(
                coalesce(new.limit_per_second, 1000000000) >= coalesce(old.limit_per_second, 1000000000)
                and coalesce(new.limit_per_minute, 1000000000) >= coalesce(old.limit_per_minute, 1000000000)
                and coalesce(new.limit_per_hour, 1000000000) >= coalesce(old.limit_per_hour, 1000000000)
                and coalesce(new.limit_per_day, 1000000000) >= coalesce(old.limit_per_day, 1000000000),
                c.now,
                max(
                    c.now + 1000,
                    coalesce((
                        select max(b.begins)
                        from destinations d indexed by destinations_of_group
                        join changes_begin b on b.destination_id = d.id
                        where d.tenant_id = new.tenant_id and d.limit_group = new.name
                            and d.limit_group is not null
                    ), 0),
                    coalesce(min(c.now + 26000, (
                        select max(m.left_at) from limit_group_members m
                        where m.tenant_id = new.tenant_id and m.limit_group = new.name
                            and m.left_at > c.now
                    )), 0)
                )
            ),
            coalesce(min(c.now + 26000, (
                select h.in_force_from from limit_group_history h
                where h.tenant_id = new.tenant_id and h.limit_group = new.name
                order by h.id desc limit 1
            )), 0)
        ),
        new.limit_per_second, new.limit_per_minute, new.limit_per_hour, new.limit_per_day
    from store_clock c;

    insert into limit_changes (destination_id, deleted_at, revokes)
    select d.id, d.deleted_at, not (
        coalesce(new.limit_per_second, 1000000000) >= coalesce(old.limit_per_second, 1000000000)
        and coalesce(new.limit_per_minute, 1000000000) >= coalesce(old.limit_per_minute, 1000000000)
        and coalesce(new.limit_per_hour, 1000000000) >= coalesce(old.limit_per_hour, 1000000000)
        and coalesce(new.limit_per_day, 1000000000) >= coalesce(old.limit_per_day, 1000000000)
    )
    from destinations d indexed by destinations_of_group
    where d.tenant_id = new.tenant_id and d.limit_group = new.name and d.limit_group is not null;

    -- It is in force for all of its members at once, and none of them starts before.
    insert into pacing (destination_id, held_until)
    select d.id, h.in_force_from
    from destinations d indexed by destinations_of_group
    join store_clock c
    join (
        select in_force_from from limit_group_history
        where tenant_id = new.tenant_id and limit_group = new.name
        order by id desc limit 1
    ) h on h.in_force_from > c.now
    where d.tenant_id = new.tenant_id and d.limit_group = new.name and d.limit_group is not null
    on conflict (destination_id) do update
    set held_until = max(coalesce(held_until, 0), excluded.held_until);
end;

create trigger limit_groups_after_delete after delete on limit_groups
begin
    insert into limit_group_history (tenant_id, limit_group, in_force_from)
    select old.tenant_id, old.name,
        max(c.now, coalesce(min(c.now + 26000, (
            select h.in_force_from from limit_group_history h
            where h.tenant_id = old.tenant_id and h.limit_group = old.name
            order by h.id desc limit 1
        )), 0))
    from store_clock c;
end;

create trigger limit_group_history_trim after insert on limit_group_history
begin
    delete from limit_group_history where id in (
        select id from limit_group_history
        where tenant_id = new.tenant_id and limit_group = new.limit_group
        order by id desc limit -1 offset 1000
    );
end;

-- ---------------------------------------------------------------------------
-- The audit that anyone can run: how many attempts started in each calendar
-- second, and the largest limit in force within it: of the entry that it began
-- with, and of those that came in it. Null, if one of them did not limit. A change
-- reaches what is sent up to half a second later: what had been claimed goes out. A
-- bucket may start `burst` at once and half a second's worth of slack more;
-- every other shape its limit. Sliding windows are judged by `paceline audit`.

create view starts_per_second as
select
    s.destination_id,
    datetime(s.second, 'unixepoch') as second,
    s.starts,
    s.average_delivery_latency,
    iif(count(*) > count(h.limit_per_second), null, max(h.limit_per_second)) as limit_per_second,
    count(*) = count(h.limit_per_second)
    and s.starts > max(case h.shape
        when 'token_bucket'
            then coalesce(h.burst, h.limit_per_second) + (h.limit_per_second * 3 + 1) / 2
        when 'leaky_bucket' then 1 + (h.limit_per_second * 3 + 1) / 2
        else h.limit_per_second
    end) as over
from (
    select destination_id, started_at / 1000000 as second, count(*) as starts,
        avg(delivery_latency) as average_delivery_latency
    from starts
    where carried_by is null
    group by destination_id, started_at / 1000000
) s
join limit_history h on h.destination_id = s.destination_id
    and h.in_force_from < (s.second + 1) * 1000000
    and h.in_force_from >= coalesce(
        (
            select max(earlier.in_force_from) from limit_history earlier
            where earlier.destination_id = s.destination_id
                and earlier.in_force_from <= s.second * 1000000 - 500000
        ),
        0
    )
group by s.destination_id, s.second;

-- The same of limit groups: what destinations claimed while they were members, in each
-- calendar second, and the largest limit of the group in force within it.
create view group_starts_per_second as
select
    s.tenant_id,
    s.limit_group,
    datetime(s.second, 'unixepoch') as second,
    s.starts,
    iif(count(*) > count(h.limit_per_second), null, max(h.limit_per_second)) as limit_per_second,
    count(*) = count(h.limit_per_second) and s.starts > max(h.limit_per_second) as over
from (
    select m.tenant_id, m.limit_group, a.started_at / 1000000 as second, count(*) as starts
    from limit_group_members m
    join starts a on a.destination_id = m.destination_id and a.claimed_at >= m.joined_at
        and (m.left_at is null or a.claimed_at < m.left_at)
    where a.carried_by is null
    group by m.tenant_id, m.limit_group, a.started_at / 1000000
) s
join limit_group_history h on h.tenant_id = s.tenant_id and h.limit_group = s.limit_group
    and h.in_force_from < (s.second + 1) * 1000000
    and h.in_force_from >= coalesce(
        (
            select max(earlier.in_force_from) from limit_group_history earlier
            where earlier.tenant_id = s.tenant_id and earlier.limit_group = s.limit_group
                and earlier.in_force_from <= s.second * 1000000 - 500000
        ),
        0
    )
group by s.tenant_id, s.limit_group, s.second;
