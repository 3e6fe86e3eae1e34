-- A claim may date its start up to 10 ms ahead, to the permit's slot. A change
-- of limits is dated after every start that was claimed before it: no window
-- that begins with the change holds one. The callers have locked the
-- destinations, so nothing is admitted meanwhile, and of those that revoke
-- nothing can be claimed any more.
create or replace function note_change(changed uuid[]) returns void
    language plpgsql volatile
as $$
declare
    ahead interval;
begin
    select max(s.started_at) - clock_timestamp()
    into ahead
    from unnest(changed) as c (id)
    cross join (values (false), (true)) as f (folded)
    cross join lateral (
        select a.started_at from attempts a
        where a.destination_id = c.id and a.folded = f.folded and a.started_at is not null
        order by a.started_at desc
        limit 1
    ) s;
    -- More than a head start is a clock that was set back, which is not waited for.
    if ahead > interval '0' then
        perform pg_sleep_for(least(ahead, interval '10 milliseconds'));
    end if;
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
