-- Attempts: those that are owed, and the ledger of those that are over, which is kept by
-- the day as events are; and what is kept beside them.

-- Ids of attempts embed the day: its number since 1970 in the high bits, so
-- that whoever has an id knows the partition. JSON can hold them up to the year
-- 2700 (2^53); a day has room for 2^36.

create function first_attempt_id(of_day date) returns bigint
    language sql immutable parallel safe
    return (of_day - date '1970-01-01')::bigint << 36;

create sequence attempts_id_seq as bigint;

-- Sets the sequence forward to the first id of the day, and never back. It takes nothing, so
-- that a role that may not set sequences can be lent it (examples/worker_grants.sql).
create function attempts_day_begins() returns void
    language plpgsql volatile set search_path from current
as $$
declare
    ids regclass := 'attempts_id_seq';
    lowest bigint := floor(date_part('epoch', clock_timestamp()) / 86400)::bigint << 36;
begin
    -- Of all that come first on a day one sets it forward. The others must not
    -- set it back; and nobody may keep the lock until its commit, so it is
    -- given back with the subtransaction. What setval did stays.
    perform pg_advisory_xact_lock(ids::oid::bigint);
    if coalesce(pg_sequence_last_value(ids), 0) < lowest then
        perform setval(ids, lowest);
    end if;
    raise sqlstate 'PLDAY';
exception
    when sqlstate 'PLDAY' then null;
end;
$$;

-- Each larger than the one before, whatever the clock does. The sequence is an
-- argument, and what sets it forward is looked for beside it: so it works under any
-- search_path.
create function next_attempt_id(ids regclass) returns bigint
    language plpgsql volatile
as $$
declare
    lowest bigint := floor(date_part('epoch', clock_timestamp()) / 86400)::bigint << 36;
    given bigint := nextval(ids);
begin
    if given >= lowest then
        return given;
    end if;
    execute format(
        'select %s.attempts_day_begins()',
        (select c.relnamespace::regnamespace from pg_class c where c.oid = ids)
    );
    return nextval(ids);
end;
$$;

-- A destination in few bytes. Two may have the same: whoever asks by it asks for the id, too.
create function hash_of(destination uuid) returns bigint
    language sql immutable parallel safe
    return uuid_hash_extended(destination, 0);

-- An attempt is a row of `deliveries` as long as it is owed: it waits, has a permit or is
-- under way. When it is over the row goes, and one of `ledger` is written, once. So what
-- changes is small and has few indexes, of which the claim touches none, and what is large
-- is only added to. Whoever asks for attempts whatever their state, as the audit does,
-- reads both here.
--
-- No foreign keys: making a day and dropping one would lock the table that they refer to,
-- and an attempt outlives its event, whose payload has a shorter age. An event and its
-- attempts are inserted in one transaction, and retention deletes no event with an attempt
-- that is not over or a dead letter that can be replayed. Destinations are never deleted,
-- but marked; a trigger sees to that.
create table attempts (
    id bigint not null default next_attempt_id('attempts_id_seq'),
    event_id uuid not null,
    destination_id uuid not null,
    tenant_id uuid not null,
    created_at timestamptz not null default clock_timestamp(),
    try_number integer not null default 1,
    -- Tries of the event before its last replay: the policy counts from there.
    tries_before integer not null default 0,
    -- Of the event's payload: how full a batch is, without reading it.
    payload_bytes integer not null default 0,
    dead_letter boolean not null default false,
    -- Its start is in start_buckets.
    folded boolean not null default false,
    -- It is in the urgent lane, with `due_at`: a first attempt of an urgent event, or a replayed one.
    urgent boolean not null default false,
    -- What a permit sets. What one step sets lies side by side, here and below: the log has
    -- of a row that changes in its page all from the first byte that differs to the last.
    admitted_at timestamptz,
    permit bigint,
    epoch bigint,
    not_before timestamptz,
    deadline timestamptz,
    -- A coarse limit counts its start, so its outcome folds it.
    coarse boolean not null default false,
    -- Its outcome makes room that somebody waits for.
    crowded boolean not null default false,
    -- Where it is counted when it is over: at the end of its answer.
    by_response boolean not null default false,
    state text not null default 'waiting',
    -- What a claim sets, and the state.
    worker_id uuid,
    -- When it was claimed, or its slot if that was a moment ahead. What gives a start up
    -- goes by it, and so does what is signed.
    claimed_at timestamptz,
    -- When its request's first byte was handed to the network, as its worker measured it:
    -- what limits count. Until that is known, the latest that it may have been: half a
    -- second after the claim, and never after the deadline.
    started_at timestamptz,
    -- The attempt in whose request it was sent. A limit counts requests, so
    -- whatever counts starts leaves these out.
    carried_by bigint,
    -- Of an attempt in whose request others were: how many events that had. Null
    -- for one that was alone, and for those that were carried.
    batch_size integer,
    -- What an outcome sets.
    status integer,
    finished_at timestamptz,
    -- Where answers count (`count`): the end of its answer, or of the longest time-out of
    -- one that nobody has the outcome of. Null where its start counts.
    counted_at timestamptz,
    error text,
    response_body bytea,
    -- A line each, `name: value`: beside a body, and of every answer that is no success.
    response_headers text,
    -- Null in most.
    -- The largest batch that it may be in; null is the destination's own.
    -- Halved when a batch is split; 1 goes alone.
    batch_limit integer,
    -- Null: a first attempt that was never admitted. Else when a retry is due,
    -- or the creation of one that is urgent, or whose permit was returned.
    due_at timestamptz,
    -- Not admitted from then on; null for never.
    expires_at timestamptz,
    -- The replay that made it.
    replay_id uuid,
    -- A dead letter that was replayed, and when.
    replayed_at timestamptz,
    constraint attempts_check_admitted check (
        state <> 'admitted'
        or num_nulls(permit, epoch, not_before, deadline) = 0
    ),
    constraint attempts_check_started_at check (
        (started_at is null) = (state in ('waiting', 'admitted', 'cancelled', 'expired'))
    ),
    constraint attempts_check_claimed_at check ((claimed_at is null) = (started_at is null))
) partition by list (state);

alter sequence attempts_id_seq owned by attempts.id;

-- Rows change in place: there has to be room for it in their pages, for a version with a
-- permit and one that is under way beside each that waits. With less room permits leave
-- their pages and claims write index entries: 100 bytes of log a delivery at 45.
create table deliveries partition of attempts
    for values in ('waiting', 'admitted', 'started')
    with (
        fillfactor = 33, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_analyze_scale_factor = 0.1
    );

create table ledger partition of attempts
    for values in ('succeeded', 'failed', 'unknown', 'not_sent', 'cancelled', 'expired')
    partition by range (id);

-- What counts of it is found by its permit.
alter table deliveries
    add constraint deliveries_check_permit check ((permit is null) = (state = 'waiting')),
    add constraint deliveries_check_carried check (carried_by is null or state = 'started');

-- What is owed. What waits and what has a permit are in indexes of their own, so that a
-- permit writes two entries, that of the key and that of what is held, and leaves those of
-- what waits. No index says `state`, or anything else that a claim sets: a claim writes none.
alter table deliveries add primary key (id);
-- What waits: first attempts in the order that a cursor reads, and the others by when they
-- are due, those of the urgent lane before all that is not. That lane is in the index of the
-- others and not in one of its own: a first attempt that is not urgent writes no entry more,
-- and whoever asks for all that waits asks no third index.
--
-- `id + 0`, here and below: a statement that asks for it in this order cannot
-- be planned as a walk along the primary key, which looks cheap to a planner
-- whose statistics know few destinations, and reads everybody's backlog.
create index deliveries_first on deliveries (destination_id, (id + 0))
    where permit is null and due_at is null;
create index deliveries_due on deliveries (destination_id, urgent desc, due_at, id)
    where permit is null and due_at is not null;
-- For whoever reads a backlog page by page, which is by id.
create index deliveries_due_by_id on deliveries (destination_id, (id + 0))
    where permit is null and due_at is not null;
create index deliveries_expiring on deliveries (expires_at)
    where permit is null and expires_at is not null;
-- What has a permit, or is under way. All of it is little: whoever looks for permits that
-- have ended, of any destination, reads it whole. Entries that are put together because
-- their keys are the same can only be cleared together, and a run would read all that a
-- destination has had since the last vacuum.
create index deliveries_held on deliveries (destination_id) with (deduplicate_items = off)
    where permit is not null and carried_by is null;
-- What is under way in the request of another.
create index deliveries_carried on deliveries (destination_id) where carried_by is not null;
-- Attempts that were to be made at some time, as retries are. Of the others each event knows
-- the ids. Said in words of its own: an index of all that `is not null` could be read whole,
-- in place of those above, by a plan of a time when hardly anything was in it.
create index deliveries_of_event on deliveries (event_id, (id + 0))
    where num_nonnulls(due_at) > 0;
create index deliveries_of_replay on deliveries (replay_id) where replay_id is not null;

-- What is owed of an event.
create function deliveries_of(of_event uuid) returns setof deliveries
    language sql stable parallel safe
begin atomic
    select a.* from events e
    cross join unnest(array_prepend(e.delivery, e.deliveries)) as n (id)
    join deliveries a on a.id = n.id
    where e.id = of_event and e.day = event_day(of_event) and a.due_at is null
    union all
    select a.* from deliveries a where a.event_id = of_event and num_nonnulls(a.due_at) > 0;
end;

-- What is over.
alter table ledger add primary key (id);
-- Starts, for the windows. `folded` is in the key: admission reads the few that
-- are not folded, however large the limit and so the number of those that are.
create index ledger_starts on ledger (destination_id, folded, started_at desc, id desc)
    where started_at is not null and carried_by is null;
create index ledger_answers on ledger (destination_id, counted_at desc)
    where counted_at is not null and carried_by is null;
-- As with what is owed: of the others each event knows the ids.
create index ledger_of_event on ledger (event_id, (id + 0)) where due_at is not null;
-- For people: a destination's, in their order. By a hash, so that no plan of admission can
-- mistake it for the other; with the ids of the destination and its tenant in their place an
-- entry is twice as large.
create index ledger_of_destination on ledger (hash_of(destination_id), (id + 0));
-- Dead letters that can be replayed, by when they died: their outcome, or the
-- start of one whose outcome nobody knows.
create index ledger_dead
    on ledger (destination_id, (coalesce(finished_at, started_at)), (id + 0))
    where dead_letter and replayed_at is null;
create index ledger_dead_of_tenant
    on ledger (tenant_id, (coalesce(finished_at, started_at)), (id + 0))
    where dead_letter and replayed_at is null;
-- Whosever they are. By micros(), so that no plan that looks for a destination's can take it.
create index ledger_dead_by_age on ledger (micros(coalesce(finished_at, started_at)), (id + 0))
    where dead_letter and replayed_at is null;
create index ledger_of_replay on ledger (replay_id, state) where replay_id is not null;
-- When what is in a range of pages ended: whether anything in an old day ended
-- late is asked of it, and not of the day.
create index ledger_by_end on ledger using brin (coalesce(finished_at, started_at));

-- What is over of an event.
create function ledger_of(of_event uuid) returns setof ledger
    language sql stable parallel safe
begin atomic
    select a.* from events e
    cross join unnest(array_prepend(e.delivery, e.deliveries)) as n (id)
    join ledger a on a.id = n.id
    where e.id = of_event and e.day = event_day(of_event) and a.due_at is null
    union all
    select a.* from ledger a where a.event_id = of_event and a.due_at is not null;
end;

-- The newest attempts of an event that are older than one of them, the newest first: it
-- reads as many, however many there are.
create function newest_of(of_event uuid, older_than bigint, most bigint)
    returns setof attempts
    language sql stable parallel safe
begin atomic
    select a.* from (
        (
            select a.* from (
                select n.id from events e
                cross join unnest(array_prepend(e.delivery, e.deliveries)) as n (id)
                where e.id = of_event and e.day = event_day(of_event) and n.id < older_than
                -- No more are looked for: those that are due at a time are found below.
                order by n.id desc limit most
            ) n
            cross join lateral (
                select l.* from ledger l where l.id = n.id and l.due_at is null
                union all
                select d.* from deliveries d where d.id = n.id and d.due_at is null
            ) a
            order by n.id desc limit most
        )
        union all
        (
            select l.* from ledger l
            where l.event_id = of_event and l.due_at is not null
                and l.id < older_than and l.id + 0 < older_than
            order by l.id + 0 desc limit most
        )
        union all
        (
            select d.* from deliveries d
            where d.event_id = of_event and num_nonnulls(d.due_at) > 0 and d.id + 0 < older_than
            order by d.id + 0 desc limit most
        )
    ) a
    order by a.id desc limit most;
end;

-- What has started, by when that was, and how long it took from its event to its outcome.
-- What is under way is found by its permit.
create view starts as
select a.*, a.finished_at - a.created_at as delivery_latency
from ledger a where a.started_at is not null
union all
select a.*, a.finished_at - a.created_at
from deliveries a where a.permit is not null and a.state = 'started';

create function destinations_before_delete() returns trigger
    language plpgsql
as $$
begin
    if exists (
        select from ledger a
        where hash_of(a.destination_id) = hash_of(old.id) and a.destination_id = old.id
    ) or exists (
        select from deliveries a
        where a.destination_id = old.id and a.permit is null and a.due_at is null
    ) or exists (
        select from deliveries a
        where a.destination_id = old.id and a.permit is null and a.due_at is not null
    ) or exists (
        select from deliveries a
        where a.destination_id = old.id and a.permit is not null and a.carried_by is null
    ) or exists (
        select from deliveries a where a.destination_id = old.id and a.carried_by is not null
    ) then
        raise foreign_key_violation
            using message = format('destination %s has attempts', old.id),
                hint = 'set deleted_at instead';
    end if;
    return old;
end;
$$;

create trigger destinations_before_delete before delete on destinations
    for each row execute function destinations_before_delete();

-- ---------------------------------------------------------------------------
-- Days of events and of the ledger.
--
-- There is no default partition: rows in it would have to be read, under a lock that keeps
-- everybody out, each time that a day is made. Days are made ahead.
--
-- Partitions are made as tables and then attached: other than `create table …
-- partition of` this keeps nobody from reading or writing meanwhile.

-- The day of a partition, by its name; null for that of events without one.
create function partition_day(name text) returns date
    language sql immutable parallel safe
    return to_date(substring(name from '_([0-9]{4,}_[0-9]{2}_[0-9]{2})$'), 'YYYY_MM_DD');

-- The bounds of a partition, by its name.
create function day_bounds(name text) returns text
    language sql stable
    return case when name like 'ledger%' then
        format('for values from (%L) to (%L)',
            first_attempt_id(partition_day(name)), first_attempt_id(partition_day(name) + 1))
        else format('for values in (%L)', partition_day(name)) end;

-- Makes the day of `parent` where it is missing; whether it was.
create function ensure_day(parent regclass, of_day date) returns boolean
    language plpgsql volatile
as $$
declare
    home text;
    name text;
begin
    select n.nspname, c.relname || to_char(of_day, '_YYYY_MM_DD')
    into home, name
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.oid = parent;
    if to_regclass(format('%I.%I', home, name)) is not null then
        return false;
    end if;
    -- A busy ledger: dead versions are cleared and counted before they are many.
    execute format(
        'create table %I.%I (
            like %s including defaults including constraints including generated
            including storage including comments
        ) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)',
        home, name, parent);
    execute format(
        'alter table %s attach partition %I.%I %s', parent, home, name, day_bounds(name));
    return true;
end;
$$;

-- Whether attempts and events of that day have somewhere to go.
create function has_day(of_day date) returns boolean
    language sql stable
as $$
    select count(*) = 2
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent in ('ledger'::regclass, 'events'::regclass) and not i.inhdetachpending
        and c.relname in (
            to_char(of_day, '"ledger"_YYYY_MM_DD'), to_char(of_day, '"events"_YYYY_MM_DD')
        )
$$;

-- Whether an event of that day has somewhere to go: a day that is missing
-- between others is made, one before or after all of them is not.
create function ensure_event_day(of_day date, ahead integer) returns boolean
    language plpgsql volatile
as $$
declare
    has boolean;
    first_day date;
begin
    select coalesce(bool_or(d.day = of_day), false), min(d.day)
    into has, first_day
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    cross join lateral (select partition_day(c.relname) as day) d
    where i.inhparent = 'events'::regclass and not i.inhdetachpending;
    if has or of_day = '1970-01-01' then
        return true;
    end if;
    if of_day < first_day or of_day > utc_day(clock_timestamp()) + ahead then
        return false;
    end if;
    perform pg_advisory_xact_lock('events'::regclass::oid::bigint);
    perform ensure_day('events', of_day);
    return true;
end;
$$;

-- Makes today and so many days ahead; the number of partitions that were made.
create function ensure_days(ahead integer) returns integer
    language plpgsql volatile
as $$
declare
    today date := utc_day(clock_timestamp());
    -- A clock that was wrong has set the sequence ahead, and it does not go back.
    given date := date '1970-01-01'
        + (coalesce(pg_sequence_last_value('attempts_id_seq'), 0) >> 36)::integer;
    made integer := 0;
    day date;
begin
    -- Processes that start together take turns.
    perform pg_advisory_xact_lock('events'::regclass::oid::bigint);
    for day in select today + n from generate_series(0, ahead) n loop
        made := made + ensure_day('ledger', day)::integer + ensure_day('events', day)::integer;
    end loop;
    -- What is owed since a day that nobody made ends in that day.
    for day in
        select n::date
        from (select min(d.id) as first from deliveries d) oldest
        cross join generate_series(
            date '1970-01-01' + (oldest.first >> 36)::integer, greatest(today, given), interval '1 day') n
        where exists (
            select from deliveries d
            where d.id >= first_attempt_id(n::date) and d.id < first_attempt_id(n::date + 1)
        )
    loop
        made := made + ensure_day('ledger', day)::integer;
    end loop;
    if given > today + ahead then
        made := made + ensure_day('ledger', given)::integer
            + ensure_day('ledger', given + 1)::integer;
    end if;
    return made;
end;
$$;

select ensure_days(3);

-- Where admission begins to look in the ledger. An attempt with a smaller id is over, and
-- has been for so long that no limit counts it: so the days before are not asked,
-- however many are kept.
--
-- True for ever once it is found: what is over stays over, and new ids are larger
-- than all that were given. It is found anew once an hour, and cached by nobody:
-- whoever needs it reads it. Whoever sets old attempts to `waiting` by hand, or
-- restores some, sets it to 0, or waits for the next look.
create table attempts_horizon (
    id integer primary key default 1
        constraint attempts_horizon_check_id check (id = 1),
    attempt_id bigint not null,
    -- What the last look has found, and when. The horizon follows when the next
    -- one finds no less.
    seen bigint not null,
    seen_at timestamptz
);

insert into attempts_horizon (attempt_id, seen) values (0, 0);

-- ---------------------------------------------------------------------------
-- What is kept beside them.

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

-- A replay: dead letters, or events, that become waiting attempts of one destination again.
create table replays (
    id uuid primary key,
    tenant_id uuid not null,
    destination_id uuid not null references destinations (id),
    -- What it is of: dead letters, or events whatever became of them.
    source text not null default 'dead_letters'
        constraint replays_check_source check (source in ('dead_letters', 'events')),
    -- Of events: this one; null is any.
    event_id uuid,
    -- Of events: those only that the destination has not got.
    only_missed boolean not null default false,
    -- Which: null is any.
    attempt_id bigint,
    event_type text,
    -- Of events: how an attempt there was answered, by its status or by the first digit of a
    -- class.
    status integer,
    -- Of events: how an attempt there ended.
    attempt_state text,
    -- Of events: what their ids, as they are written, have in them.
    event_text text,
    -- When a dead letter died, or an event was accepted.
    died_from timestamptz,
    -- The creation of the replay at the latest.
    died_before timestamptz not null,
    -- Which part of the destination's limit it may use.
    share double precision not null
        constraint replays_check_share check (share > 0 and share <= 1),
    state text not null default 'running'
        constraint replays_check_state check (state in ('running', 'completed', 'cancelled')),
    total bigint not null,
    done bigint not null default 0,
    -- Of events: those without a payload any more, when it began.
    skipped bigint not null default 0,
    -- Up to where the dead letters, or the events, were looked at.
    after_at timestamptz,
    after_id bigint,
    after_event uuid,
    -- When the last of those replayed would have started, at the share.
    paced_at timestamptz,
    -- When a step looked at it last.
    looked_at timestamptz,
    created_at timestamptz not null,
    finished_at timestamptz
);

create index replays_running on replays (tenant_id, id) where state = 'running';
create index replays_of_tenant on replays (tenant_id, id);
-- A destination that goes is asked for here.
create index replays_of_destination on replays (destination_id);
create index replays_finished on replays (finished_at) where finished_at is not null;
