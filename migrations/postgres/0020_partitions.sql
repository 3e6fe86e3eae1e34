-- Attempts and events by the day, so that what is old goes as a whole table and
-- not row by row. SQLite has nothing of this.
--
-- What is in the two tables stays where it is: each becomes the first partition
-- of a new table of its name. Nothing is copied; both are read once or twice,
-- and locked meanwhile.
--
-- There is no default partition: rows in it would have to be read, under a lock
-- that keeps everybody out, each time that a day is made. Days are made ahead.

lock table events, attempts in access exclusive mode;

-- The day in UTC, whatever the session's time zone.
create function utc_day(at timestamptz) returns date
    language sql immutable parallel safe
    return (at at time zone 'UTC')::date;

-- ---------------------------------------------------------------------------
-- Ids of attempts embed the day: its number since 1970 in the high bits, so
-- that whoever has an id knows the partition. JSON can hold them up to the year
-- 2700 (2^53); a day has room for 2^36.

create function first_attempt_id(of_day date) returns bigint
    language sql immutable parallel safe
    return (of_day - date '1970-01-01')::bigint << 36;

-- Each larger than the one before, whatever the clock does: where the day has
-- changed the sequence is set forward, and never back. The sequence is an
-- argument, and no other function of ours is called: so it works under any
-- search_path.
create function next_attempt_id(ids regclass) returns bigint
    language plpgsql volatile
as $$
declare
    lowest bigint := floor(extract(epoch from clock_timestamp()) / 86400)::bigint << 36;
    given bigint := nextval(ids);
begin
    if given >= lowest then
        return given;
    end if;
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
    return nextval(ids);
end;
$$;

-- ---------------------------------------------------------------------------
-- Events know their day by their id: of version 7, it begins with the time.
-- All other ids, and those of before the first day, have no day of their own:
-- they are under 1970-01-01, and go row by row. Constant for ever, for it is
-- where an event is looked for.

do $$
declare
    -- An event of today may be in the table that becomes the first partition.
    first_day date := utc_day(clock_timestamp()) + exists (select from events)::integer;
    first_id text := rpad(
        lpad(to_hex((first_day - date '1970-01-01') * 86400000::bigint), 12, '0'), 32, '0');
begin
    execute format(
        $sql$
        create function event_day(id uuid) returns date
            language sql immutable parallel safe
            return case
                when substr(id::text, 15, 1) = '7' and id >= %L::uuid then
                    date '1970-01-01' + (
                        ('x' || left(translate(id::text, '-', ''), 12))::bit(48)::bigint / 86400000
                    )::integer
                else date '1970-01-01'
            end
        $sql$,
        first_id);
end;
$$;

-- An id of version 7, of now.
create function new_event_id() returns uuid
    language sql volatile parallel safe
    return (
        lpad(to_hex(floor(extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0')
        || '7' || substr(translate(gen_random_uuid()::text, '-', ''), 14)
    )::uuid;

alter table outbox alter column event_id set default new_event_id();

-- ---------------------------------------------------------------------------
-- Partitions are made as tables and then attached: other than `create table …
-- partition of` this keeps nobody from reading or writing meanwhile.

-- The day of a partition, by its name; null for the two first.
create function partition_day(name text) returns date
    language sql immutable parallel safe
    return to_date(substring(name from '_([0-9]{4,}_[0-9]{2}_[0-9]{2})$'), 'YYYY_MM_DD');

-- The bounds of a partition, by its name.
create function day_bounds(parent regclass, name text) returns text
    language plpgsql stable
as $$
declare
    of_day date := partition_day(name);
begin
    if name = 'attempts_before' then
        return (
            select format('for values from (minvalue) to (%L)',
                min(substring(pg_get_expr(c.relpartbound, c.oid) from 'FROM \(''(\d+)''')::bigint))
            from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = parent
        );
    end if;
    return case when name like 'attempts%' then
        format('for values from (%L) to (%L)',
            first_attempt_id(of_day), first_attempt_id(of_day + 1))
        else format('for values in (%L)', of_day) end;
end;
$$;

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
        'alter table %s attach partition %I.%I %s', parent, home, name, day_bounds(parent, name));
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
    where i.inhparent in ('attempts'::regclass, 'events'::regclass) and not i.inhdetachpending
        and c.relname in (
            to_char(of_day, '"attempts"_YYYY_MM_DD'), to_char(of_day, '"events"_YYYY_MM_DD')
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
        made := made + ensure_day('attempts', day)::integer + ensure_day('events', day)::integer;
    end loop;
    if given > today + ahead then
        made := made + ensure_day('attempts', given)::integer
            + ensure_day('attempts', given + 1)::integer;
    end if;
    return made;
end;
$$;

-- ---------------------------------------------------------------------------
-- The two tables become partitions. Whatever indexes, triggers and views they
-- have by now are those of the new tables, under the same names.

-- No foreign keys: making a day and dropping one would lock the table that they
-- refer to. An event and its attempts are inserted in one transaction, and an
-- event is not deleted before nothing needs it. Destinations are never deleted,
-- but marked; a trigger sees to that.
alter table attempts drop constraint if exists attempts_event_id_fkey;
alter table attempts drop constraint attempts_destination_id_fkey;

create function destinations_before_delete() returns trigger
    language plpgsql
as $$
begin
    if exists (
        select from attempts a where a.tenant_id = old.tenant_id and a.destination_id = old.id
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

alter table attempts alter column id drop identity;
create sequence attempts_id_seq as bigint;

-- Filled without a rewrite.
alter table events add column day date not null default '1970-01-01';
alter table events alter column day drop default;
alter table events drop constraint events_pkey;

do $$
declare
    -- The table, what it becomes, and how the new one is divided.
    tables constant text[] := array[
        ['attempts', 'attempts_before', 'range (id)'],
        ['events', 'events_timeless', 'list (day)']
    ];
    before text[];
    old regclass;
    home text;
    indexes text[];
    triggers text[];
    views text[];
    grants text[];
    command text;
    one record;
begin
    foreach before slice 1 in array tables loop
        old := before[1]::regclass;
        select n.nspname into home
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = old;

        select array_agg(pg_get_indexdef(i.indexrelid)) into indexes
        from pg_index i where i.indrelid = old and not i.indisprimary;
        select array_agg(pg_get_triggerdef(t.oid)) into triggers
        from pg_trigger t where t.tgrelid = old and not t.tgisinternal;
        select array_agg(distinct
            format('create or replace view %s as %s', v.oid::regclass, pg_get_viewdef(v.oid)))
        into views
        from pg_depend d
        join pg_rewrite r on r.oid = d.objid
        join pg_class v on v.oid = r.ev_class and v.relkind = 'v'
        where d.classid = 'pg_rewrite'::regclass and d.refclassid = 'pg_class'::regclass
            and d.refobjid = old;
        select array_agg(format(
            'grant %s on %I.%I to %s%s', a.privilege_type, home, before[1],
            case a.grantee when 0 then 'public' else a.grantee::regrole::text end,
            case when a.is_grantable then ' with grant option' else '' end))
        into grants
        from pg_class c cross join aclexplode(c.relacl) a
        where c.oid = old and a.grantee <> c.relowner;

        for one in
            select i.indexrelid::regclass as index, c.relname,
                case when starts_with(c.relname, before[1])
                    then overlay(c.relname placing before[2] from 1 for length(before[1]))
                    else 'before_' || c.relname end as new_name
            from pg_index i join pg_class c on c.oid = i.indexrelid
            where i.indrelid = old
        loop
            execute format('alter index %s rename to %I', one.index, one.new_name);
        end loop;
        for one in
            select t.tgname from pg_trigger t where t.tgrelid = old and not t.tgisinternal
        loop
            execute format('drop trigger %I on %s', one.tgname, old);
        end loop;
        execute format('alter table %s rename to %I', old, before[2]);
        execute format(
            'create table %I.%I (
                like %s including defaults including constraints including generated
                including storage including comments
            ) partition by %s',
            home, before[1], old, before[3]);
        foreach command in array '{}'::text[] || indexes || triggers || views || grants loop
            execute command;
        end loop;
    end loop;
end;
$$;

alter sequence attempts_id_seq owned by attempts.id;
alter table attempts
    add primary key (id),
    alter column id set default next_attempt_id('attempts_id_seq');

do $$
begin
    execute format(
        'alter table attempts attach partition attempts_before for values from (minvalue) to (%s)',
        first_attempt_id(utc_day(clock_timestamp())));
end;
$$;

-- When what is in a range of pages ended: whether anything in an old day ended
-- late is asked of it, and not of the day.
create index attempts_by_end on attempts using brin (coalesce(finished_at, started_at));

-- An id has one day, so the pair is unique if and only if the id is.
alter table events
    add primary key (id, day),
    add constraint events_check_day check (day = event_day(id));

-- Ids that were dated ahead, by whoever gave them.
do $$
declare
    of_day date;
begin
    for of_day in
        select distinct event_day(e.id) from events_timeless e where event_day(e.id) <> e.day
    loop
        perform ensure_day('events', of_day);
    end loop;
    with moved as (
        delete from events_timeless e where event_day(e.id) <> e.day
        returning e.id, e.tenant_id, e.event_type, e.content_type, e.payload, e.created_at
    )
    insert into events (id, tenant_id, event_type, content_type, payload, created_at, day)
    select m.id, m.tenant_id, m.event_type, m.content_type, m.payload, m.created_at, event_day(m.id)
    from moved m;
end;
$$;

alter table events_timeless
    add constraint events_check_day check (day = event_day(id));
alter table events attach partition events_timeless for values in ('1970-01-01');

select ensure_days(3);
