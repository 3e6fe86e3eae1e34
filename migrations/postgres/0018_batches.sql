-- Batches: several events of one destination in one request. The SQLite half
-- says the same.

-- Null events: one event a request. The other two are what domain::batch says
-- where they are null. Numbers are read when a batch is composed, so a change of
-- them revokes nothing; to turn batches on or off bumps the epoch.
alter table destinations
    add column batch_max_events integer
        constraint destinations_check_batch_max_events check (batch_max_events between 1 and 500),
    add column batch_max_bytes integer
        constraint destinations_check_batch_max_bytes
        check (batch_max_bytes between 1 and 1000000),
    add column batch_max_wait_ms integer
        constraint destinations_check_batch_max_wait_ms
        check (batch_max_wait_ms between 0 and 60000);

alter table attempts
    -- Of the event's payload: how full a batch is, without reading it.
    add column payload_bytes integer not null default 0,
    -- The attempt in whose request it was sent. A limit counts requests, so
    -- whatever counts starts leaves these out.
    add column carried_by bigint,
    -- Of an attempt in whose request others were: how many events that had. Null
    -- for one that was alone, and for those that were carried.
    add column batch_size integer,
    -- The largest batch that it may be in; null is the destination's own.
    -- Halved when a batch is split; 1 goes alone.
    add column batch_limit integer;

drop index attempts_starts;
create index attempts_starts on attempts (destination_id, folded, started_at desc, id desc)
    where started_at is not null and carried_by is null;

drop index attempts_in_flight;
create index attempts_in_flight on attempts (destination_id)
    where state = 'started' and carried_by is null;

-- As before, by the index above.
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
            and a.carried_by is null
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

-- As before, of requests.
create or replace view starts_per_second as
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
    where started_at is not null and carried_by is null
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
