-- Batches: several events of one destination in one request. The Postgres half
-- says the same.

-- Null events: one event a request. The other two are what domain::batch says
-- where they are null. Numbers are read when a batch is composed, so a change of
-- them revokes nothing; to turn batches on or off bumps the epoch.
alter table destinations add column batch_max_events integer
    constraint destinations_check_batch_max_events check (batch_max_events between 1 and 500);
alter table destinations add column batch_max_bytes integer
    constraint destinations_check_batch_max_bytes check (batch_max_bytes between 1 and 1000000);
alter table destinations add column batch_max_wait_ms integer
    constraint destinations_check_batch_max_wait_ms check (batch_max_wait_ms between 0 and 60000);

-- Of the event's payload: how full a batch is, without reading it.
alter table attempts add column payload_bytes integer not null default 0;
-- The attempt in whose request it was sent. A limit counts requests, so whatever
-- counts starts leaves these out.
alter table attempts add column carried_by integer;
-- Of an attempt in whose request others were: how many events that had. Null for
-- one that was alone, and for those that were carried.
alter table attempts add column batch_size integer;
-- The largest batch that it may be in; null is the destination's own. Halved
-- when a batch is split; 1 goes alone.
alter table attempts add column batch_limit integer;

drop index attempts_starts;
create index attempts_starts on attempts (destination_id, folded, started_at desc, id desc)
    where started_at is not null and carried_by is null;

drop index attempts_in_flight;
create index attempts_in_flight on attempts (destination_id)
    where state = 'started' and carried_by is null;

-- As before, of requests.
drop view starts_per_second;
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
    from attempts
    where started_at is not null and carried_by is null
    group by destination_id, started_at / 1000000
) s
join limit_history h on h.destination_id = s.destination_id
    and h.in_force_from < (s.second + 1) * 1000000
    and h.in_force_from >= coalesce(
        (
            select max(earlier.in_force_from) from limit_history earlier
            where earlier.destination_id = s.destination_id
                and earlier.in_force_from <= s.second * 1000000
        ),
        0
    )
group by s.destination_id, s.second;
