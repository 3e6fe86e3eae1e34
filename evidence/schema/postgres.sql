--
-- PostgreSQL database dump
--



SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: paceline; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA paceline;


--
-- Name: limit_settings; Type: TYPE; Schema: public; Owner: -
--

CREATE TYPE public.limit_settings AS (
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


--
-- Name: tier_change; Type: TYPE; Schema: public; Owner: -
--

CREATE TYPE public.tier_change AS (
	destination_id uuid,
	tier_before public.limit_settings,
	tier_after public.limit_settings
);


--
-- Name: attempts_tally_dead_letter(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.attempts_tally_dead_letter() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    insert into dead_letter_tallies (destination_id, tenant_id)
    values (new.destination_id, new.tenant_id);
    return null;
end;
$$;


--
-- Name: day_bounds(regclass, text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.day_bounds(parent regclass, name text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$
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


--
-- Name: destinations_after_insert(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.destinations_after_insert() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    perform note_change(array(select n.id from new_rows n order by n.id));
    return null;
end;
$$;


--
-- Name: destinations_after_update(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.destinations_after_update() RETURNS trigger
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
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


--
-- Name: destinations_before_delete(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.destinations_before_delete() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: destinations_before_traces(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.destinations_before_traces() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    new.epoch := greatest(new.epoch, old.epoch + 1);
    return new;
end;
$$;


--
-- Name: destinations_before_update(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.destinations_before_update() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: destinations_forget_health(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.destinations_forget_health() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    delete from health where destination_id = new.id;
    return null;
end;
$$;


--
-- Name: destinations_forget_manager(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.destinations_forget_manager() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    delete from destination_managers where destination_id = new.id;
    return null;
end;
$$;


--
-- Name: destinations_forget_operational(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.destinations_forget_operational() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    delete from operational_destinations where destination_id = new.id;
    return null;
end;
$$;


--
-- Name: destinations_forget_secrets(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.destinations_forget_secrets() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    delete from destination_secrets where destination_id = new.id;
    return null;
end;
$$;


--
-- Name: destinations_set_smart(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.destinations_set_smart() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: ensure_day(regclass, date); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.ensure_day(parent regclass, of_day date) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: ensure_days(integer); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.ensure_days(ahead integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: ensure_event_day(date, integer); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.ensure_event_day(of_day date, ahead integer) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: event_day(uuid); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.event_day(id uuid) RETURNS date
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN ((substr((id)::text, 15, 1) = '7'::text) AND (id >= 'EVENT0'::uuid)) THEN ('1970-01-01'::date + ((((('x'::text || "left"(translate((id)::text, '-'::text, ''::text), 12)))::bit(48))::bigint / 86400000))::integer) ELSE '1970-01-01'::date END;


--
-- Name: first_attempt_id(date); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.first_attempt_id(of_day date) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (((of_day - '1970-01-01'::date))::bigint << 36);


--
-- Name: from_micros(bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.from_micros(micros bigint) RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ('1970-01-01 00:00:00+00'::timestamp with time zone + ((micros)::double precision * '00:00:00.000001'::interval));


--
-- Name: has_day(date); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.has_day(of_day date) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select count(*) = 2
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent in ('attempts'::regclass, 'events'::regclass) and not i.inhdetachpending
        and c.relname in (
            to_char(of_day, '"attempts"_YYYY_MM_DD'), to_char(of_day, '"events"_YYYY_MM_DD')
        )
$$;


--
-- Name: is_pure_raise(public.limit_settings, public.limit_settings); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.is_pure_raise(before public.limit_settings, after public.limit_settings) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
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


--
-- Name: mark_changed(uuid[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.mark_changed(changed uuid[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: max_in_flight_of(public.limit_settings); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.max_in_flight_of(limits public.limit_settings) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (COALESCE(((limits).max_in_flight)::numeric, GREATEST((50)::numeric, floor((LEAST(((limits).limit_per_second)::numeric, (((limits).limit_per_minute)::numeric / 60.0), (((limits).limit_per_hour)::numeric / 3600.0), (((limits).limit_per_day)::numeric / 86400.0)) / 4.0)))))::double precision;


--
-- Name: micros(timestamp with time zone); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.micros(at timestamp with time zone) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((EXTRACT(epoch FROM (at - '1970-01-01 00:00:00+00'::timestamp with time zone)) * (1000000)::numeric))::bigint;


--
-- Name: new_event_id(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.new_event_id() RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    RETURN (((lpad(to_hex((floor((EXTRACT(epoch FROM clock_timestamp()) * (1000)::numeric)))::bigint), 12, '0'::text) || '7'::text) || substr(translate((gen_random_uuid())::text, '-'::text, ''::text), 14)))::uuid;


--
-- Name: next_attempt_id(regclass); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.next_attempt_id(ids regclass) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: note_change(uuid[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.note_change(changed uuid[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
        perform pg_sleep_for(least(ahead, interval '25 milliseconds'));
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


--
-- Name: outbox_after_insert(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.outbox_after_insert() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    notify paceline_outbox;
    return null;
end;
$$;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: destinations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.destinations (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    url text NOT NULL,
    event_types text[] DEFAULT '{}'::text[] NOT NULL,
    limit_per_second integer,
    limit_per_minute integer,
    limit_per_hour integer,
    limit_per_day integer,
    unlimited boolean DEFAULT false NOT NULL,
    burst integer,
    shape text,
    max_in_flight integer,
    safety_margin double precision DEFAULT 0 NOT NULL,
    state text DEFAULT 'active'::text NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    deleted_at timestamp with time zone,
    drained_at timestamp with time zone,
    breaker_failures integer,
    breaker_failing_for_seconds integer,
    breaker_disable_after_seconds integer,
    retry_policy jsonb,
    max_age_ms bigint,
    smart_delivery boolean DEFAULT false NOT NULL,
    alert_backlog integer,
    alert_under_delivery_seconds integer,
    alert_failing_percent integer,
    batch_max_events integer,
    batch_max_bytes integer,
    batch_max_wait_ms integer,
    pass_traceparent boolean DEFAULT false NOT NULL,
    CONSTRAINT destinations_check_alert_backlog CHECK (((alert_backlog >= 0) AND (alert_backlog <= 100000))),
    CONSTRAINT destinations_check_alert_failing_percent CHECK (((alert_failing_percent >= 0) AND (alert_failing_percent <= 100))),
    CONSTRAINT destinations_check_alert_under_delivery_seconds CHECK (((alert_under_delivery_seconds >= 0) AND (alert_under_delivery_seconds <= 86400))),
    CONSTRAINT destinations_check_batch_max_bytes CHECK (((batch_max_bytes >= 1) AND (batch_max_bytes <= 1000000))),
    CONSTRAINT destinations_check_batch_max_events CHECK (((batch_max_events >= 1) AND (batch_max_events <= 500))),
    CONSTRAINT destinations_check_batch_max_wait_ms CHECK (((batch_max_wait_ms >= 0) AND (batch_max_wait_ms <= 60000))),
    CONSTRAINT destinations_check_breaker_disable_after_seconds CHECK (((breaker_disable_after_seconds >= 0) AND (breaker_disable_after_seconds <= 1000000000))),
    CONSTRAINT destinations_check_breaker_failing_for_seconds CHECK (((breaker_failing_for_seconds >= 0) AND (breaker_failing_for_seconds <= 1000000000))),
    CONSTRAINT destinations_check_breaker_failures CHECK (((breaker_failures >= 0) AND (breaker_failures <= 1000000000))),
    CONSTRAINT destinations_check_burst CHECK ((((burst >= 1) AND (burst <= 1000000000)) AND ((shape IS DISTINCT FROM 'leaky_bucket'::text) OR (burst = 1)))),
    CONSTRAINT destinations_check_drained_at CHECK (((drained_at IS NULL) OR (deleted_at IS NOT NULL))),
    CONSTRAINT destinations_check_limit_per_day CHECK (((limit_per_day >= 0) AND (limit_per_day <= 1000000000))),
    CONSTRAINT destinations_check_limit_per_hour CHECK (((limit_per_hour >= 0) AND (limit_per_hour <= 1000000000))),
    CONSTRAINT destinations_check_limit_per_minute CHECK (((limit_per_minute >= 0) AND (limit_per_minute <= 1000000000))),
    CONSTRAINT destinations_check_limit_per_second CHECK (((limit_per_second >= 0) AND (limit_per_second <= 1000000000))),
    CONSTRAINT destinations_check_max_age_ms CHECK (((max_age_ms >= 1) AND (max_age_ms <= '2592000000'::bigint))),
    CONSTRAINT destinations_check_max_in_flight CHECK (((max_in_flight >= 1) AND (max_in_flight <= 1000000000))),
    CONSTRAINT destinations_check_retry_policy CHECK (((jsonb_typeof(retry_policy) = 'object'::text) AND ((COALESCE(((retry_policy ->> 'max_tries'::text))::integer, 1) >= 1) AND (COALESCE(((retry_policy ->> 'max_tries'::text))::integer, 1) <= 100)))),
    CONSTRAINT destinations_check_safety_margin CHECK (((safety_margin >= (0)::double precision) AND (safety_margin <= (1)::double precision))),
    CONSTRAINT destinations_check_shape CHECK ((shape = ANY (ARRAY['sliding_window'::text, 'token_bucket'::text, 'leaky_bucket'::text]))),
    CONSTRAINT destinations_check_state CHECK ((state = ANY (ARRAY['active'::text, 'paused'::text, 'disabled'::text]))),
    CONSTRAINT destinations_check_unlimited CHECK (((NOT unlimited) OR (num_nonnulls(limit_per_second, limit_per_minute, limit_per_hour, limit_per_day) = 0)))
);


--
-- Name: own_limits(public.destinations); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.own_limits(d public.destinations) RETURNS public.limit_settings
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ROW((d).limit_per_second, (d).limit_per_minute, (d).limit_per_hour, (d).limit_per_day, (d).unlimited, (d).burst, (d).shape, (d).max_in_flight, (d).safety_margin)::public.limit_settings;


--
-- Name: partition_day(text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.partition_day(name text) RETURNS date
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN to_date("substring"(name, '_([0-9]{4,}_[0-9]{2}_[0-9]{2})$'::text), 'YYYY_MM_DD'::text);


--
-- Name: require_read_committed(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.require_read_committed() RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'limits can only be changed in a read committed transaction, this one is %',
            current_setting('transaction_isolation')
            using errcode = 'feature_not_supported',
                hint = 'begin with: begin isolation level read committed';
    end if;
end;
$$;


--
-- Name: resolved_limits(public.limit_settings, public.limit_settings); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.resolved_limits(own public.limit_settings, tier public.limit_settings) RETURNS public.limit_settings
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
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


--
-- Name: tenants_after_update(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.tenants_after_update() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: tier_limits(uuid); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.tier_limits(of_tenant uuid) RETURNS public.limit_settings
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: tiers_after_update(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.tiers_after_update() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: tiers_changed(public.tier_change[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.tiers_changed(changes public.tier_change[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: utc_day(timestamp with time zone); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.utc_day(at timestamp with time zone) RETURNS date
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((at AT TIME ZONE 'UTC'::text))::date;


--
-- Name: outbox; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.outbox (
    "position" bigint NOT NULL,
    event_id uuid DEFAULT public.new_event_id(),
    tenant_id uuid DEFAULT '00000000-0000-0000-0000-000000000001'::uuid,
    destination_id uuid,
    event_type text,
    content_type text DEFAULT 'application/json'::text,
    payload text,
    payload_bytes bytea,
    created_at timestamp with time zone DEFAULT clock_timestamp(),
    lane smallint GENERATED ALWAYS AS (((uuid_hash(COALESCE(destination_id, tenant_id, '00000000-0000-0000-0000-000000000001'::uuid)) & 15))::smallint) STORED NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.0', autovacuum_vacuum_threshold='5000');


--
-- Name: outbox; Type: VIEW; Schema: paceline; Owner: -
--

CREATE VIEW paceline.outbox AS
 SELECT outbox."position",
    outbox.event_id,
    outbox.tenant_id,
    outbox.destination_id,
    outbox.event_type,
    outbox.content_type,
    outbox.payload,
    outbox.payload_bytes,
    outbox.created_at
   FROM public.outbox;


--
-- Name: outbox_rejected; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.outbox_rejected (
    "position" bigint NOT NULL,
    event_id uuid,
    tenant_id uuid,
    destination_id uuid,
    event_type text,
    content_type text,
    payload text,
    payload_bytes bytea,
    created_at timestamp with time zone,
    reason text NOT NULL,
    rejected_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: outbox_rejected; Type: VIEW; Schema: paceline; Owner: -
--

CREATE VIEW paceline.outbox_rejected AS
 SELECT outbox_rejected."position",
    outbox_rejected.event_id,
    outbox_rejected.tenant_id,
    outbox_rejected.destination_id,
    outbox_rejected.event_type,
    outbox_rejected.content_type,
    outbox_rejected.payload,
    outbox_rejected.payload_bytes,
    outbox_rejected.created_at,
    outbox_rejected.reason,
    outbox_rejected.rejected_at
   FROM public.outbox_rejected;


--
-- Name: _sqlx_migrations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public._sqlx_migrations (
    version bigint NOT NULL,
    description text NOT NULL,
    installed_on timestamp with time zone DEFAULT now() NOT NULL,
    success boolean NOT NULL,
    checksum bytea NOT NULL,
    execution_time bigint NOT NULL
);


--
-- Name: api_keys; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.api_keys (
    id text NOT NULL,
    tenant_id uuid NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    digest bytea NOT NULL,
    may_ingest boolean NOT NULL,
    may_manage boolean NOT NULL,
    may_read boolean NOT NULL,
    may_admin boolean NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT api_keys_check_digest CHECK ((octet_length(digest) = 32)),
    CONSTRAINT api_keys_check_id CHECK ((id ~ '^[0-9a-f]{16}$'::text)),
    CONSTRAINT api_keys_check_scopes CHECK (((may_ingest OR may_manage OR may_read OR may_admin) AND ((NOT may_admin) OR (tenant_id = '00000000-0000-0000-0000-000000000001'::uuid))))
)
WITH (fillfactor='80');


--
-- Name: attempts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.attempts (
    id bigint NOT NULL,
    event_id uuid NOT NULL,
    destination_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    try_number integer DEFAULT 1 NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    due_at timestamp with time zone,
    permit bigint,
    epoch bigint,
    not_before timestamp with time zone,
    deadline timestamp with time zone,
    coarse boolean DEFAULT false NOT NULL,
    folded boolean DEFAULT false NOT NULL,
    crowded boolean DEFAULT false NOT NULL,
    worker_id uuid,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    admitted_at timestamp with time zone,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    delivery_latency interval GENERATED ALWAYS AS ((finished_at - created_at)) STORED,
    status integer,
    error text,
    response_body bytea,
    dead_letter boolean DEFAULT false NOT NULL,
    tries_before integer DEFAULT 0 NOT NULL,
    expires_at timestamp with time zone,
    replay_id uuid,
    replayed_at timestamp with time zone,
    payload_bytes integer DEFAULT 0 NOT NULL,
    carried_by bigint,
    batch_size integer,
    batch_limit integer,
    CONSTRAINT attempts_check_admitted CHECK (((state <> 'admitted'::text) OR (num_nulls(permit, epoch, not_before, deadline) = 0))),
    CONSTRAINT attempts_check_started_at CHECK (((started_at IS NULL) = (state = ANY (ARRAY['waiting'::text, 'admitted'::text, 'cancelled'::text, 'expired'::text])))),
    CONSTRAINT attempts_check_state CHECK ((state = ANY (ARRAY['waiting'::text, 'admitted'::text, 'started'::text, 'succeeded'::text, 'failed'::text, 'unknown'::text, 'not_sent'::text, 'cancelled'::text, 'expired'::text])))
)
PARTITION BY RANGE (id);


--
-- Name: attempts_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.attempts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: attempts_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.attempts_id_seq OWNED BY public.attempts.id;


--
-- Name: attempts_DAY0; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.attempts_DAY0 (
    id bigint DEFAULT public.next_attempt_id('public.attempts_id_seq'::regclass) NOT NULL,
    event_id uuid NOT NULL,
    destination_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    try_number integer DEFAULT 1 NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    due_at timestamp with time zone,
    permit bigint,
    epoch bigint,
    not_before timestamp with time zone,
    deadline timestamp with time zone,
    coarse boolean DEFAULT false NOT NULL,
    folded boolean DEFAULT false NOT NULL,
    crowded boolean DEFAULT false NOT NULL,
    worker_id uuid,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    admitted_at timestamp with time zone,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    delivery_latency interval GENERATED ALWAYS AS ((finished_at - created_at)) STORED,
    status integer,
    error text,
    response_body bytea,
    dead_letter boolean DEFAULT false NOT NULL,
    tries_before integer DEFAULT 0 NOT NULL,
    expires_at timestamp with time zone,
    replay_id uuid,
    replayed_at timestamp with time zone,
    payload_bytes integer DEFAULT 0 NOT NULL,
    carried_by bigint,
    batch_size integer,
    batch_limit integer,
    CONSTRAINT attempts_check_admitted CHECK (((state <> 'admitted'::text) OR (num_nulls(permit, epoch, not_before, deadline) = 0))),
    CONSTRAINT attempts_check_started_at CHECK (((started_at IS NULL) = (state = ANY (ARRAY['waiting'::text, 'admitted'::text, 'cancelled'::text, 'expired'::text])))),
    CONSTRAINT attempts_check_state CHECK ((state = ANY (ARRAY['waiting'::text, 'admitted'::text, 'started'::text, 'succeeded'::text, 'failed'::text, 'unknown'::text, 'not_sent'::text, 'cancelled'::text, 'expired'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');


--
-- Name: attempts_DAY1; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.attempts_DAY1 (
    id bigint DEFAULT public.next_attempt_id('public.attempts_id_seq'::regclass) NOT NULL,
    event_id uuid NOT NULL,
    destination_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    try_number integer DEFAULT 1 NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    due_at timestamp with time zone,
    permit bigint,
    epoch bigint,
    not_before timestamp with time zone,
    deadline timestamp with time zone,
    coarse boolean DEFAULT false NOT NULL,
    folded boolean DEFAULT false NOT NULL,
    crowded boolean DEFAULT false NOT NULL,
    worker_id uuid,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    admitted_at timestamp with time zone,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    delivery_latency interval GENERATED ALWAYS AS ((finished_at - created_at)) STORED,
    status integer,
    error text,
    response_body bytea,
    dead_letter boolean DEFAULT false NOT NULL,
    tries_before integer DEFAULT 0 NOT NULL,
    expires_at timestamp with time zone,
    replay_id uuid,
    replayed_at timestamp with time zone,
    payload_bytes integer DEFAULT 0 NOT NULL,
    carried_by bigint,
    batch_size integer,
    batch_limit integer,
    CONSTRAINT attempts_check_admitted CHECK (((state <> 'admitted'::text) OR (num_nulls(permit, epoch, not_before, deadline) = 0))),
    CONSTRAINT attempts_check_started_at CHECK (((started_at IS NULL) = (state = ANY (ARRAY['waiting'::text, 'admitted'::text, 'cancelled'::text, 'expired'::text])))),
    CONSTRAINT attempts_check_state CHECK ((state = ANY (ARRAY['waiting'::text, 'admitted'::text, 'started'::text, 'succeeded'::text, 'failed'::text, 'unknown'::text, 'not_sent'::text, 'cancelled'::text, 'expired'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');


--
-- Name: attempts_DAY2; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.attempts_DAY2 (
    id bigint DEFAULT public.next_attempt_id('public.attempts_id_seq'::regclass) NOT NULL,
    event_id uuid NOT NULL,
    destination_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    try_number integer DEFAULT 1 NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    due_at timestamp with time zone,
    permit bigint,
    epoch bigint,
    not_before timestamp with time zone,
    deadline timestamp with time zone,
    coarse boolean DEFAULT false NOT NULL,
    folded boolean DEFAULT false NOT NULL,
    crowded boolean DEFAULT false NOT NULL,
    worker_id uuid,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    admitted_at timestamp with time zone,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    delivery_latency interval GENERATED ALWAYS AS ((finished_at - created_at)) STORED,
    status integer,
    error text,
    response_body bytea,
    dead_letter boolean DEFAULT false NOT NULL,
    tries_before integer DEFAULT 0 NOT NULL,
    expires_at timestamp with time zone,
    replay_id uuid,
    replayed_at timestamp with time zone,
    payload_bytes integer DEFAULT 0 NOT NULL,
    carried_by bigint,
    batch_size integer,
    batch_limit integer,
    CONSTRAINT attempts_check_admitted CHECK (((state <> 'admitted'::text) OR (num_nulls(permit, epoch, not_before, deadline) = 0))),
    CONSTRAINT attempts_check_started_at CHECK (((started_at IS NULL) = (state = ANY (ARRAY['waiting'::text, 'admitted'::text, 'cancelled'::text, 'expired'::text])))),
    CONSTRAINT attempts_check_state CHECK ((state = ANY (ARRAY['waiting'::text, 'admitted'::text, 'started'::text, 'succeeded'::text, 'failed'::text, 'unknown'::text, 'not_sent'::text, 'cancelled'::text, 'expired'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');


--
-- Name: attempts_DAY3; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.attempts_DAY3 (
    id bigint DEFAULT public.next_attempt_id('public.attempts_id_seq'::regclass) NOT NULL,
    event_id uuid NOT NULL,
    destination_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    try_number integer DEFAULT 1 NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    due_at timestamp with time zone,
    permit bigint,
    epoch bigint,
    not_before timestamp with time zone,
    deadline timestamp with time zone,
    coarse boolean DEFAULT false NOT NULL,
    folded boolean DEFAULT false NOT NULL,
    crowded boolean DEFAULT false NOT NULL,
    worker_id uuid,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    admitted_at timestamp with time zone,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    delivery_latency interval GENERATED ALWAYS AS ((finished_at - created_at)) STORED,
    status integer,
    error text,
    response_body bytea,
    dead_letter boolean DEFAULT false NOT NULL,
    tries_before integer DEFAULT 0 NOT NULL,
    expires_at timestamp with time zone,
    replay_id uuid,
    replayed_at timestamp with time zone,
    payload_bytes integer DEFAULT 0 NOT NULL,
    carried_by bigint,
    batch_size integer,
    batch_limit integer,
    CONSTRAINT attempts_check_admitted CHECK (((state <> 'admitted'::text) OR (num_nulls(permit, epoch, not_before, deadline) = 0))),
    CONSTRAINT attempts_check_started_at CHECK (((started_at IS NULL) = (state = ANY (ARRAY['waiting'::text, 'admitted'::text, 'cancelled'::text, 'expired'::text])))),
    CONSTRAINT attempts_check_state CHECK ((state = ANY (ARRAY['waiting'::text, 'admitted'::text, 'started'::text, 'succeeded'::text, 'failed'::text, 'unknown'::text, 'not_sent'::text, 'cancelled'::text, 'expired'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');


--
-- Name: attempts_before; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.attempts_before (
    id bigint DEFAULT NULL NOT NULL,
    event_id uuid NOT NULL,
    destination_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    try_number integer DEFAULT 1 NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    due_at timestamp with time zone,
    permit bigint,
    epoch bigint,
    not_before timestamp with time zone,
    deadline timestamp with time zone,
    coarse boolean DEFAULT false NOT NULL,
    folded boolean DEFAULT false NOT NULL,
    crowded boolean DEFAULT false NOT NULL,
    worker_id uuid,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    admitted_at timestamp with time zone,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    delivery_latency interval GENERATED ALWAYS AS ((finished_at - created_at)) STORED,
    status integer,
    error text,
    response_body bytea,
    dead_letter boolean DEFAULT false NOT NULL,
    tries_before integer DEFAULT 0 NOT NULL,
    expires_at timestamp with time zone,
    replay_id uuid,
    replayed_at timestamp with time zone,
    payload_bytes integer DEFAULT 0 NOT NULL,
    carried_by bigint,
    batch_size integer,
    batch_limit integer,
    CONSTRAINT attempts_check_admitted CHECK (((state <> 'admitted'::text) OR (num_nulls(permit, epoch, not_before, deadline) = 0))),
    CONSTRAINT attempts_check_started_at CHECK (((started_at IS NULL) = (state = ANY (ARRAY['waiting'::text, 'admitted'::text, 'cancelled'::text, 'expired'::text])))),
    CONSTRAINT attempts_check_state CHECK ((state = ANY (ARRAY['waiting'::text, 'admitted'::text, 'started'::text, 'succeeded'::text, 'failed'::text, 'unknown'::text, 'not_sent'::text, 'cancelled'::text, 'expired'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');


--
-- Name: attempts_horizon; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.attempts_horizon (
    id integer DEFAULT 1 NOT NULL,
    attempt_id bigint NOT NULL,
    seen bigint NOT NULL,
    seen_at timestamp with time zone,
    CONSTRAINT attempts_horizon_check_id CHECK ((id = 1))
);


--
-- Name: backlog_standings; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.backlog_standings (
    scope text NOT NULL,
    id uuid NOT NULL,
    tenant_id uuid,
    pending bigint NOT NULL,
    refused_at timestamp with time zone,
    refused_pending bigint,
    retry_after_ms bigint NOT NULL,
    counted_at timestamp with time zone,
    took_ms bigint,
    CONSTRAINT backlog_standings_check_scope CHECK ((scope = ANY (ARRAY['destination'::text, 'tenant'::text, 'all'::text])))
)
WITH (fillfactor='50');


--
-- Name: dead_letter_tallies; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.dead_letter_tallies (
    id bigint NOT NULL,
    destination_id uuid NOT NULL,
    tenant_id uuid NOT NULL
);


--
-- Name: dead_letter_tallies_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.dead_letter_tallies ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.dead_letter_tallies_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: destination_managers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.destination_managers (
    destination_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    resource text NOT NULL,
    uid text
);


--
-- Name: destination_mark_versions; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.destination_mark_versions
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: destination_marks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.destination_marks (
    destination_id uuid NOT NULL,
    version bigint NOT NULL
);


--
-- Name: destination_secrets; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.destination_secrets (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    destination_id uuid NOT NULL,
    kind text NOT NULL,
    key_id text NOT NULL,
    sealed bytea NOT NULL,
    shown text,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT destination_secrets_check_kind CHECK ((kind = ANY (ARRAY['hmac'::text, 'ed25519'::text, 'headers'::text])))
);


--
-- Name: events; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.events (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    event_type text,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    day date NOT NULL,
    trace text,
    CONSTRAINT events_check_day CHECK ((day = public.event_day(id)))
)
PARTITION BY LIST (day);


--
-- Name: events_DAY0; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.events_DAY0 (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    event_type text,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    day date NOT NULL,
    trace text,
    CONSTRAINT events_check_day CHECK ((day = public.event_day(id)))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');


--
-- Name: events_DAY1; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.events_DAY1 (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    event_type text,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    day date NOT NULL,
    trace text,
    CONSTRAINT events_check_day CHECK ((day = public.event_day(id)))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');


--
-- Name: events_DAY2; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.events_DAY2 (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    event_type text,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    day date NOT NULL,
    trace text,
    CONSTRAINT events_check_day CHECK ((day = public.event_day(id)))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');


--
-- Name: events_DAY3; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.events_DAY3 (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    event_type text,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    day date NOT NULL,
    trace text,
    CONSTRAINT events_check_day CHECK ((day = public.event_day(id)))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');


--
-- Name: events_timeless; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.events_timeless (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    event_type text,
    content_type text NOT NULL,
    payload bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    day date NOT NULL,
    trace text,
    CONSTRAINT events_check_day CHECK ((day = public.event_day(id)))
);


--
-- Name: health; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.health (
    destination_id uuid NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    failing_since timestamp with time zone,
    last_failed_at timestamp with time zone,
    refusals integer DEFAULT 0 NOT NULL,
    held_since timestamp with time zone,
    held_until timestamp with time zone,
    held_for text,
    opened_at timestamp with time zone,
    probes integer DEFAULT 0 NOT NULL,
    disabled_for text,
    CONSTRAINT health_check_disabled_for CHECK ((disabled_for = ANY (ARRAY['gone'::text, 'failing'::text]))),
    CONSTRAINT health_check_failing_since CHECK (((failing_since IS NULL) = (last_failed_at IS NULL))),
    CONSTRAINT health_check_held_for CHECK ((held_for = ANY (ARRAY['asked'::text, 'refused'::text, 'breaker'::text]))),
    CONSTRAINT health_check_held_until CHECK ((((held_until IS NULL) = (held_since IS NULL)) AND ((held_until IS NULL) = (held_for IS NULL))))
)
WITH (fillfactor='50');


--
-- Name: idempotency_keys; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.idempotency_keys (
    tenant_id uuid NOT NULL,
    key text NOT NULL,
    digest bytea NOT NULL,
    event_id uuid NOT NULL,
    expires_at timestamp with time zone NOT NULL
);


--
-- Name: limit_history; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.limit_history (
    id bigint NOT NULL,
    destination_id uuid NOT NULL,
    in_force_from timestamp with time zone NOT NULL,
    limit_per_second integer,
    limit_per_minute integer,
    limit_per_hour integer,
    limit_per_day integer,
    unlimited boolean NOT NULL,
    burst integer,
    shape text,
    max_in_flight integer,
    safety_margin double precision NOT NULL,
    state text NOT NULL
);


--
-- Name: limit_history_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.limit_history ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.limit_history_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: limit_requests; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.limit_requests (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    destination_id uuid NOT NULL,
    settings text NOT NULL,
    note text NOT NULL,
    state text DEFAULT 'open'::text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    decided_at timestamp with time zone,
    CONSTRAINT limit_requests_check_decided CHECK (((state = 'open'::text) = (decided_at IS NULL))),
    CONSTRAINT limit_requests_check_state CHECK ((state = ANY (ARRAY['open'::text, 'approved'::text, 'declined'::text])))
);


--
-- Name: operational_destinations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.operational_destinations (
    "position" bigint NOT NULL,
    destination_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    scope text NOT NULL,
    event_types text[] NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT operational_destinations_check_scope CHECK ((scope = ANY (ARRAY['tenant'::text, 'installation'::text])))
);


--
-- Name: operational_destinations_position_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.operational_destinations ALTER COLUMN "position" ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.operational_destinations_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: operational_events; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.operational_events (
    id bigint NOT NULL,
    event_type text NOT NULL,
    destination_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    details text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    relayed_at timestamp with time zone
);


--
-- Name: operational_events_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.operational_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.operational_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: outbox_lanes; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.outbox_lanes (
    lane smallint NOT NULL
);


--
-- Name: outbox_position_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.outbox ALTER COLUMN "position" ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.outbox_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: pacing; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.pacing (
    destination_id uuid NOT NULL,
    last_permit bigint DEFAULT 0 NOT NULL,
    meter_missing_micro bigint DEFAULT 0 NOT NULL,
    meter_as_of timestamp with time zone,
    meter_epoch bigint,
    looked_at timestamp with time zone,
    next_look_at timestamp with time zone,
    first_after bigint DEFAULT 0 NOT NULL,
    held_until timestamp with time zone,
    deferred_until timestamp with time zone
)
WITH (fillfactor='50');


--
-- Name: replays; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.replays (
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    destination_id uuid NOT NULL,
    attempt_id bigint,
    event_type text,
    status integer,
    died_from timestamp with time zone,
    died_before timestamp with time zone NOT NULL,
    share double precision NOT NULL,
    state text DEFAULT 'running'::text NOT NULL,
    total bigint NOT NULL,
    done bigint DEFAULT 0 NOT NULL,
    after_at timestamp with time zone,
    after_id bigint,
    paced_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT replays_check_share CHECK (((share > (0)::double precision) AND (share <= (1)::double precision))),
    CONSTRAINT replays_check_state CHECK ((state = ANY (ARRAY['running'::text, 'completed'::text, 'cancelled'::text])))
);


--
-- Name: retention_turn; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.retention_turn (
    id integer DEFAULT 1 NOT NULL,
    due_at timestamp with time zone NOT NULL,
    CONSTRAINT retention_turn_check_id CHECK ((id = 1))
);


--
-- Name: retention_walks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.retention_walks (
    name text NOT NULL,
    after_id bigint DEFAULT 0 NOT NULL,
    after_at timestamp with time zone DEFAULT '1970-01-01 00:00:00+00'::timestamp with time zone NOT NULL,
    after_event uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid NOT NULL,
    left_id bigint,
    left_at timestamp with time zone,
    began_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone NOT NULL,
    CONSTRAINT retention_walks_check_name CHECK ((name = ANY (ARRAY['attempts'::text, 'days'::text, 'dead_letters'::text, 'destinations'::text, 'events'::text, 'limit_history'::text, 'records'::text])))
);


--
-- Name: sessions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.sessions (
    digest bytea NOT NULL,
    kind text NOT NULL,
    tenant_id uuid NOT NULL,
    key_id text,
    configured_digest bytea,
    may_ingest boolean NOT NULL,
    may_manage boolean NOT NULL,
    may_read boolean NOT NULL,
    may_admin boolean NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    link_digest bytea,
    CONSTRAINT sessions_check_digest CHECK ((octet_length(digest) = 32)),
    CONSTRAINT sessions_check_key CHECK (((key_id IS NULL) <> (configured_digest IS NULL))),
    CONSTRAINT sessions_check_kind CHECK ((kind = ANY (ARRAY['key'::text, 'link'::text, 'opened'::text, 'once'::text])))
);


--
-- Name: smart_history; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.smart_history (
    id bigint NOT NULL,
    destination_id uuid NOT NULL,
    in_force_from timestamp with time zone NOT NULL,
    per_second double precision,
    max_in_flight integer,
    reason text NOT NULL
);


--
-- Name: smart_history_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.smart_history ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.smart_history_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: smart_limits; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.smart_limits (
    destination_id uuid NOT NULL,
    per_second double precision,
    max_in_flight integer,
    reason text DEFAULT 'configured'::text NOT NULL,
    begun_at timestamp with time zone NOT NULL,
    memory text,
    CONSTRAINT smart_limits_check_max_in_flight CHECK ((max_in_flight >= 1)),
    CONSTRAINT smart_limits_check_per_second CHECK ((per_second > (0)::double precision)),
    CONSTRAINT smart_limits_check_reason CHECK ((reason = ANY (ARRAY['configured'::text, 'refused'::text, 'slow'::text, 'raising'::text])))
)
WITH (fillfactor='50');


--
-- Name: start_buckets; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.start_buckets (
    destination_id uuid NOT NULL,
    period text NOT NULL,
    ends_at timestamp with time zone NOT NULL,
    shard smallint NOT NULL,
    starts integer NOT NULL,
    CONSTRAINT start_buckets_check_period CHECK ((period = ANY (ARRAY['second'::text, 'minute'::text, 'hour'::text, 'day'::text])))
)
WITH (fillfactor='70');


--
-- Name: starts_per_second; Type: VIEW; Schema: public; Owner: -
--

CREATE VIEW public.starts_per_second AS
 SELECT s.destination_id,
    s.second,
    s.starts,
    s.average_delivery_latency,
    l.limit_per_second,
    COALESCE(((s.starts)::numeric > l.bound), false) AS over
   FROM (( SELECT attempts.destination_id,
            date_trunc('second'::text, attempts.started_at) AS second,
            count(*) AS starts,
            avg(attempts.delivery_latency) AS average_delivery_latency
           FROM public.attempts
          WHERE ((attempts.started_at IS NOT NULL) AND (attempts.carried_by IS NULL))
          GROUP BY attempts.destination_id, (date_trunc('second'::text, attempts.started_at))) s
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN bool_or((h.limit_per_second IS NULL)) THEN NULL::integer
                    ELSE max(h.limit_per_second)
                END AS limit_per_second,
                CASE
                    WHEN bool_or((h.limit_per_second IS NULL)) THEN NULL::numeric
                    ELSE max(
                    CASE h.shape
                        WHEN 'token_bucket'::text THEN ((COALESCE(h.burst, h.limit_per_second))::numeric + ceil(((h.limit_per_second)::numeric * 1.5)))
                        WHEN 'leaky_bucket'::text THEN ((1)::numeric + ceil(((h.limit_per_second)::numeric * 1.5)))
                        ELSE (h.limit_per_second)::numeric
                    END)
                END AS bound
           FROM public.limit_history h
          WHERE ((h.destination_id = s.destination_id) AND (h.in_force_from < (s.second + '00:00:01'::interval)) AND (h.in_force_from >= COALESCE(( SELECT max(earlier.in_force_from) AS max
                   FROM public.limit_history earlier
                  WHERE ((earlier.destination_id = s.destination_id) AND (earlier.in_force_from <= s.second))), '-infinity'::timestamp with time zone)))) l);


--
-- Name: tallies; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.tallies (
    destination_id uuid NOT NULL,
    slot text NOT NULL,
    ends_at timestamp with time zone NOT NULL,
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    refused bigint NOT NULL,
    unknown bigint NOT NULL,
    CONSTRAINT tallies_check_slot CHECK ((slot = ANY (ARRAY['minutes'::text, 'hour'::text])))
);


--
-- Name: tally_marks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.tally_marks (
    destination_id uuid NOT NULL,
    until timestamp with time zone NOT NULL,
    last_failed_at timestamp with time zone,
    last_failed_status integer,
    failing_since timestamp with time zone,
    failing_told boolean DEFAULT false NOT NULL
);


--
-- Name: tally_turn; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.tally_turn (
    id smallint NOT NULL,
    after uuid,
    is_cut boolean DEFAULT false NOT NULL,
    due_at timestamp with time zone NOT NULL
);


--
-- Name: tenants; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.tenants (
    id uuid NOT NULL,
    name text NOT NULL,
    tier text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    max_in_flight integer,
    ingest_per_second integer,
    CONSTRAINT tenants_check_ingest_per_second CHECK (((ingest_per_second >= 1) AND (ingest_per_second <= 1000000000))),
    CONSTRAINT tenants_check_max_in_flight CHECK (((max_in_flight >= 1) AND (max_in_flight <= 1000000000)))
);


--
-- Name: tiers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.tiers (
    name text NOT NULL,
    limit_per_second integer,
    limit_per_minute integer,
    limit_per_hour integer,
    limit_per_day integer,
    unlimited boolean DEFAULT false NOT NULL,
    burst integer,
    shape text,
    max_in_flight integer,
    tenant_max_in_flight integer,
    tenant_max_destinations integer DEFAULT 10000,
    tenant_ingest_per_second integer,
    CONSTRAINT tiers_check_burst CHECK ((((burst >= 1) AND (burst <= 1000000000)) AND ((shape IS DISTINCT FROM 'leaky_bucket'::text) OR (burst = 1)))),
    CONSTRAINT tiers_check_limit_per_day CHECK (((limit_per_day >= 0) AND (limit_per_day <= 1000000000))),
    CONSTRAINT tiers_check_limit_per_hour CHECK (((limit_per_hour >= 0) AND (limit_per_hour <= 1000000000))),
    CONSTRAINT tiers_check_limit_per_minute CHECK (((limit_per_minute >= 0) AND (limit_per_minute <= 1000000000))),
    CONSTRAINT tiers_check_limit_per_second CHECK (((limit_per_second >= 0) AND (limit_per_second <= 1000000000))),
    CONSTRAINT tiers_check_max_in_flight CHECK (((max_in_flight >= 1) AND (max_in_flight <= 1000000000))),
    CONSTRAINT tiers_check_shape CHECK ((shape = ANY (ARRAY['sliding_window'::text, 'token_bucket'::text, 'leaky_bucket'::text]))),
    CONSTRAINT tiers_check_tenant_ingest_per_second CHECK (((tenant_ingest_per_second >= 1) AND (tenant_ingest_per_second <= 1000000000))),
    CONSTRAINT tiers_check_tenant_max_destinations CHECK (((tenant_max_destinations >= 1) AND (tenant_max_destinations <= 1000000000))),
    CONSTRAINT tiers_check_tenant_max_in_flight CHECK (((tenant_max_in_flight >= 1) AND (tenant_max_in_flight <= 1000000000))),
    CONSTRAINT tiers_check_unlimited CHECK (((NOT unlimited) OR (num_nonnulls(limit_per_second, limit_per_minute, limit_per_hour, limit_per_day) = 0)))
);


--
-- Name: watch_turn; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.watch_turn (
    id smallint NOT NULL,
    after uuid,
    due_at timestamp with time zone NOT NULL
);


--
-- Name: watches; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.watches (
    destination_id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    backlog_high_since timestamp with time zone,
    short_since timestamp with time zone,
    short_seen_at timestamp with time zone,
    short_for text,
    short_told boolean DEFAULT false NOT NULL,
    dead_letters bigint DEFAULT 0 NOT NULL,
    dead_letters_told_at timestamp with time zone
);


--
-- Name: workers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.workers (
    id uuid NOT NULL,
    places integer NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    retired boolean DEFAULT false NOT NULL
)
WITH (fillfactor='50');


--
-- Name: attempts_DAY0; Type: TABLE ATTACH; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts ATTACH PARTITION public.attempts_DAY0 FOR VALUES FROM ('FIRST0') TO ('FIRST1');


--
-- Name: attempts_DAY1; Type: TABLE ATTACH; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts ATTACH PARTITION public.attempts_DAY1 FOR VALUES FROM ('FIRST1') TO ('FIRST2');


--
-- Name: attempts_DAY2; Type: TABLE ATTACH; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts ATTACH PARTITION public.attempts_DAY2 FOR VALUES FROM ('FIRST2') TO ('FIRST3');


--
-- Name: attempts_DAY3; Type: TABLE ATTACH; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts ATTACH PARTITION public.attempts_DAY3 FOR VALUES FROM ('FIRST3') TO ('FIRST4');


--
-- Name: attempts_before; Type: TABLE ATTACH; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts ATTACH PARTITION public.attempts_before FOR VALUES FROM (MINVALUE) TO ('FIRST0');


--
-- Name: events_DAY0; Type: TABLE ATTACH; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events ATTACH PARTITION public.events_DAY0 FOR VALUES IN ('DAY0');


--
-- Name: events_DAY1; Type: TABLE ATTACH; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events ATTACH PARTITION public.events_DAY1 FOR VALUES IN ('DAY1');


--
-- Name: events_DAY2; Type: TABLE ATTACH; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events ATTACH PARTITION public.events_DAY2 FOR VALUES IN ('DAY2');


--
-- Name: events_DAY3; Type: TABLE ATTACH; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events ATTACH PARTITION public.events_DAY3 FOR VALUES IN ('DAY3');


--
-- Name: events_timeless; Type: TABLE ATTACH; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events ATTACH PARTITION public.events_timeless FOR VALUES IN ('1970-01-01');


--
-- Name: attempts id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts ALTER COLUMN id SET DEFAULT public.next_attempt_id('public.attempts_id_seq'::regclass);


--
-- Name: _sqlx_migrations _sqlx_migrations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public._sqlx_migrations
    ADD CONSTRAINT _sqlx_migrations_pkey PRIMARY KEY (version);


--
-- Name: api_keys api_keys_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);


--
-- Name: attempts attempts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (id);


--
-- Name: attempts_DAY0 attempts_DAY0_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts_DAY0
    ADD CONSTRAINT attempts_DAY0_pkey PRIMARY KEY (id);


--
-- Name: attempts_DAY1 attempts_DAY1_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts_DAY1
    ADD CONSTRAINT attempts_DAY1_pkey PRIMARY KEY (id);


--
-- Name: attempts_DAY2 attempts_DAY2_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts_DAY2
    ADD CONSTRAINT attempts_DAY2_pkey PRIMARY KEY (id);


--
-- Name: attempts_DAY3 attempts_DAY3_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts_DAY3
    ADD CONSTRAINT attempts_DAY3_pkey PRIMARY KEY (id);


--
-- Name: attempts_before attempts_before_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts_before
    ADD CONSTRAINT attempts_before_pkey PRIMARY KEY (id);


--
-- Name: attempts_horizon attempts_horizon_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts_horizon
    ADD CONSTRAINT attempts_horizon_pkey PRIMARY KEY (id);


--
-- Name: backlog_standings backlog_standings_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.backlog_standings
    ADD CONSTRAINT backlog_standings_pkey PRIMARY KEY (scope, id);


--
-- Name: dead_letter_tallies dead_letter_tallies_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.dead_letter_tallies
    ADD CONSTRAINT dead_letter_tallies_pkey PRIMARY KEY (id);


--
-- Name: destination_managers destination_managers_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.destination_managers
    ADD CONSTRAINT destination_managers_pkey PRIMARY KEY (destination_id);


--
-- Name: destination_marks destination_marks_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.destination_marks
    ADD CONSTRAINT destination_marks_pkey PRIMARY KEY (destination_id);


--
-- Name: destination_secrets destination_secrets_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.destination_secrets
    ADD CONSTRAINT destination_secrets_pkey PRIMARY KEY (id);


--
-- Name: destinations destinations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.destinations
    ADD CONSTRAINT destinations_pkey PRIMARY KEY (id);


--
-- Name: events events_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (id, day);


--
-- Name: events_DAY0 events_DAY0_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events_DAY0
    ADD CONSTRAINT events_DAY0_pkey PRIMARY KEY (id, day);


--
-- Name: events_DAY1 events_DAY1_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events_DAY1
    ADD CONSTRAINT events_DAY1_pkey PRIMARY KEY (id, day);


--
-- Name: events_DAY2 events_DAY2_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events_DAY2
    ADD CONSTRAINT events_DAY2_pkey PRIMARY KEY (id, day);


--
-- Name: events_DAY3 events_DAY3_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events_DAY3
    ADD CONSTRAINT events_DAY3_pkey PRIMARY KEY (id, day);


--
-- Name: events_timeless events_timeless_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events_timeless
    ADD CONSTRAINT events_timeless_pkey PRIMARY KEY (id, day);


--
-- Name: health health_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.health
    ADD CONSTRAINT health_pkey PRIMARY KEY (destination_id);


--
-- Name: idempotency_keys idempotency_keys_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant_id, key);


--
-- Name: limit_history limit_history_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.limit_history
    ADD CONSTRAINT limit_history_pkey PRIMARY KEY (id);


--
-- Name: limit_requests limit_requests_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.limit_requests
    ADD CONSTRAINT limit_requests_pkey PRIMARY KEY (id);


--
-- Name: operational_destinations operational_destinations_destination_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.operational_destinations
    ADD CONSTRAINT operational_destinations_destination_id_key UNIQUE (destination_id);


--
-- Name: operational_destinations operational_destinations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.operational_destinations
    ADD CONSTRAINT operational_destinations_pkey PRIMARY KEY ("position");


--
-- Name: operational_events operational_events_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.operational_events
    ADD CONSTRAINT operational_events_pkey PRIMARY KEY (id);


--
-- Name: outbox_lanes outbox_lanes_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.outbox_lanes
    ADD CONSTRAINT outbox_lanes_pkey PRIMARY KEY (lane);


--
-- Name: outbox outbox_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY ("position");


--
-- Name: outbox_rejected outbox_rejected_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.outbox_rejected
    ADD CONSTRAINT outbox_rejected_pkey PRIMARY KEY ("position");


--
-- Name: pacing pacing_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.pacing
    ADD CONSTRAINT pacing_pkey PRIMARY KEY (destination_id);


--
-- Name: replays replays_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.replays
    ADD CONSTRAINT replays_pkey PRIMARY KEY (id);


--
-- Name: retention_turn retention_turn_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.retention_turn
    ADD CONSTRAINT retention_turn_pkey PRIMARY KEY (id);


--
-- Name: retention_walks retention_walks_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.retention_walks
    ADD CONSTRAINT retention_walks_pkey PRIMARY KEY (name);


--
-- Name: sessions sessions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (digest);


--
-- Name: smart_history smart_history_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.smart_history
    ADD CONSTRAINT smart_history_pkey PRIMARY KEY (id);


--
-- Name: smart_limits smart_limits_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.smart_limits
    ADD CONSTRAINT smart_limits_pkey PRIMARY KEY (destination_id);


--
-- Name: start_buckets start_buckets_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.start_buckets
    ADD CONSTRAINT start_buckets_pkey PRIMARY KEY (destination_id, period, ends_at, shard);


--
-- Name: tallies tallies_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tallies
    ADD CONSTRAINT tallies_pkey PRIMARY KEY (destination_id, slot, ends_at);


--
-- Name: tally_marks tally_marks_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tally_marks
    ADD CONSTRAINT tally_marks_pkey PRIMARY KEY (destination_id);


--
-- Name: tally_turn tally_turn_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tally_turn
    ADD CONSTRAINT tally_turn_pkey PRIMARY KEY (id);


--
-- Name: tenants tenants_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (id);


--
-- Name: tiers tiers_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tiers
    ADD CONSTRAINT tiers_pkey PRIMARY KEY (name);


--
-- Name: watch_turn watch_turn_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.watch_turn
    ADD CONSTRAINT watch_turn_pkey PRIMARY KEY (id);


--
-- Name: watches watches_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.watches
    ADD CONSTRAINT watches_pkey PRIMARY KEY (destination_id);


--
-- Name: workers workers_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);


--
-- Name: api_keys_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX api_keys_of_tenant ON public.api_keys USING btree (tenant_id, created_at);


--
-- Name: attempts_by_end; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_by_end ON ONLY public.attempts USING brin (COALESCE(finished_at, started_at));


--
-- Name: attempts_DAY0_coalesce_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_coalesce_idx ON public.attempts_DAY0 USING brin (COALESCE(finished_at, started_at));


--
-- Name: attempts_deadline; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_deadline ON ONLY public.attempts USING btree (deadline) WHERE (state = 'admitted'::text);


--
-- Name: attempts_DAY0_deadline_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_deadline_idx ON public.attempts_DAY0 USING btree (deadline) WHERE (state = 'admitted'::text);


--
-- Name: attempts_dead; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_dead ON ONLY public.attempts USING btree (destination_id, COALESCE(finished_at, started_at), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_DAY0_destination_id_coalesce_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_destination_id_coalesce_expr_idx ON public.attempts_DAY0 USING btree (destination_id, COALESCE(finished_at, started_at), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_due; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_due ON ONLY public.attempts USING btree (destination_id, due_at, id) WHERE ((state = 'waiting'::text) AND (due_at IS NOT NULL));


--
-- Name: attempts_DAY0_destination_id_due_at_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_destination_id_due_at_id_idx ON public.attempts_DAY0 USING btree (destination_id, due_at, id) WHERE ((state = 'waiting'::text) AND (due_at IS NOT NULL));


--
-- Name: attempts_first; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_first ON ONLY public.attempts USING btree (destination_id, ((id + 0))) WHERE ((state = 'waiting'::text) AND (due_at IS NULL));


--
-- Name: attempts_DAY0_destination_id_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_destination_id_expr_idx ON public.attempts_DAY0 USING btree (destination_id, ((id + 0))) WHERE ((state = 'waiting'::text) AND (due_at IS NULL));


--
-- Name: attempts_due_by_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_due_by_id ON ONLY public.attempts USING btree (destination_id, ((id + 0))) WHERE ((state = 'waiting'::text) AND (due_at IS NOT NULL));


--
-- Name: attempts_DAY0_destination_id_expr_idx1; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_destination_id_expr_idx1 ON public.attempts_DAY0 USING btree (destination_id, ((id + 0))) WHERE ((state = 'waiting'::text) AND (due_at IS NOT NULL));


--
-- Name: attempts_starts; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_starts ON ONLY public.attempts USING btree (destination_id, folded, started_at DESC, id DESC) WHERE ((started_at IS NOT NULL) AND (carried_by IS NULL));


--
-- Name: attempts_DAY0_destination_id_folded_started_at_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_destination_id_folded_started_at_id_idx ON public.attempts_DAY0 USING btree (destination_id, folded, started_at DESC, id DESC) WHERE ((started_at IS NOT NULL) AND (carried_by IS NULL));


--
-- Name: attempts_in_flight; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_in_flight ON ONLY public.attempts USING btree (destination_id) WHERE ((state = 'started'::text) AND (carried_by IS NULL));


--
-- Name: attempts_DAY0_destination_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_destination_id_idx ON public.attempts_DAY0 USING btree (destination_id) WHERE ((state = 'started'::text) AND (carried_by IS NULL));


--
-- Name: attempts_admitted; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_admitted ON ONLY public.attempts USING btree (destination_id) INCLUDE (not_before, deadline) WHERE (state = 'admitted'::text);


--
-- Name: attempts_DAY0_destination_id_not_before_deadline_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_destination_id_not_before_deadline_idx ON public.attempts_DAY0 USING btree (destination_id) INCLUDE (not_before, deadline) WHERE (state = 'admitted'::text);


--
-- Name: attempts_of_event; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_of_event ON ONLY public.attempts USING btree (event_id);


--
-- Name: attempts_DAY0_event_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_event_id_idx ON public.attempts_DAY0 USING btree (event_id);


--
-- Name: attempts_expiring; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_expiring ON ONLY public.attempts USING btree (expires_at) WHERE ((state = 'waiting'::text) AND (expires_at IS NOT NULL));


--
-- Name: attempts_DAY0_expires_at_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_expires_at_idx ON public.attempts_DAY0 USING btree (expires_at) WHERE ((state = 'waiting'::text) AND (expires_at IS NOT NULL));


--
-- Name: attempts_dead_by_age; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_dead_by_age ON ONLY public.attempts USING btree (public.micros(COALESCE(finished_at, started_at)), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_DAY0_micros_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_micros_expr_idx ON public.attempts_DAY0 USING btree (public.micros(COALESCE(finished_at, started_at)), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_of_replay; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_of_replay ON ONLY public.attempts USING btree (replay_id, state) WHERE (replay_id IS NOT NULL);


--
-- Name: attempts_DAY0_replay_id_state_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_replay_id_state_idx ON public.attempts_DAY0 USING btree (replay_id, state) WHERE (replay_id IS NOT NULL);


--
-- Name: attempts_started; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_started ON ONLY public.attempts USING btree (started_at) INCLUDE (worker_id) WHERE (state = 'started'::text);


--
-- Name: attempts_DAY0_started_at_worker_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_started_at_worker_id_idx ON public.attempts_DAY0 USING btree (started_at) INCLUDE (worker_id) WHERE (state = 'started'::text);


--
-- Name: attempts_dead_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_dead_of_tenant ON ONLY public.attempts USING btree (tenant_id, COALESCE(finished_at, started_at), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_DAY0_tenant_id_coalesce_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_tenant_id_coalesce_expr_idx ON public.attempts_DAY0 USING btree (tenant_id, COALESCE(finished_at, started_at), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_of_tenant ON ONLY public.attempts USING btree (tenant_id, destination_id, ((id + 0)));


--
-- Name: attempts_DAY0_tenant_id_destination_id_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY0_tenant_id_destination_id_expr_idx ON public.attempts_DAY0 USING btree (tenant_id, destination_id, ((id + 0)));


--
-- Name: attempts_DAY1_coalesce_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_coalesce_idx ON public.attempts_DAY1 USING brin (COALESCE(finished_at, started_at));


--
-- Name: attempts_DAY1_deadline_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_deadline_idx ON public.attempts_DAY1 USING btree (deadline) WHERE (state = 'admitted'::text);


--
-- Name: attempts_DAY1_destination_id_coalesce_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_destination_id_coalesce_expr_idx ON public.attempts_DAY1 USING btree (destination_id, COALESCE(finished_at, started_at), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_DAY1_destination_id_due_at_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_destination_id_due_at_id_idx ON public.attempts_DAY1 USING btree (destination_id, due_at, id) WHERE ((state = 'waiting'::text) AND (due_at IS NOT NULL));


--
-- Name: attempts_DAY1_destination_id_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_destination_id_expr_idx ON public.attempts_DAY1 USING btree (destination_id, ((id + 0))) WHERE ((state = 'waiting'::text) AND (due_at IS NULL));


--
-- Name: attempts_DAY1_destination_id_expr_idx1; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_destination_id_expr_idx1 ON public.attempts_DAY1 USING btree (destination_id, ((id + 0))) WHERE ((state = 'waiting'::text) AND (due_at IS NOT NULL));


--
-- Name: attempts_DAY1_destination_id_folded_started_at_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_destination_id_folded_started_at_id_idx ON public.attempts_DAY1 USING btree (destination_id, folded, started_at DESC, id DESC) WHERE ((started_at IS NOT NULL) AND (carried_by IS NULL));


--
-- Name: attempts_DAY1_destination_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_destination_id_idx ON public.attempts_DAY1 USING btree (destination_id) WHERE ((state = 'started'::text) AND (carried_by IS NULL));


--
-- Name: attempts_DAY1_destination_id_not_before_deadline_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_destination_id_not_before_deadline_idx ON public.attempts_DAY1 USING btree (destination_id) INCLUDE (not_before, deadline) WHERE (state = 'admitted'::text);


--
-- Name: attempts_DAY1_event_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_event_id_idx ON public.attempts_DAY1 USING btree (event_id);


--
-- Name: attempts_DAY1_expires_at_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_expires_at_idx ON public.attempts_DAY1 USING btree (expires_at) WHERE ((state = 'waiting'::text) AND (expires_at IS NOT NULL));


--
-- Name: attempts_DAY1_micros_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_micros_expr_idx ON public.attempts_DAY1 USING btree (public.micros(COALESCE(finished_at, started_at)), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_DAY1_replay_id_state_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_replay_id_state_idx ON public.attempts_DAY1 USING btree (replay_id, state) WHERE (replay_id IS NOT NULL);


--
-- Name: attempts_DAY1_started_at_worker_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_started_at_worker_id_idx ON public.attempts_DAY1 USING btree (started_at) INCLUDE (worker_id) WHERE (state = 'started'::text);


--
-- Name: attempts_DAY1_tenant_id_coalesce_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_tenant_id_coalesce_expr_idx ON public.attempts_DAY1 USING btree (tenant_id, COALESCE(finished_at, started_at), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_DAY1_tenant_id_destination_id_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY1_tenant_id_destination_id_expr_idx ON public.attempts_DAY1 USING btree (tenant_id, destination_id, ((id + 0)));


--
-- Name: attempts_DAY2_coalesce_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_coalesce_idx ON public.attempts_DAY2 USING brin (COALESCE(finished_at, started_at));


--
-- Name: attempts_DAY2_deadline_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_deadline_idx ON public.attempts_DAY2 USING btree (deadline) WHERE (state = 'admitted'::text);


--
-- Name: attempts_DAY2_destination_id_coalesce_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_destination_id_coalesce_expr_idx ON public.attempts_DAY2 USING btree (destination_id, COALESCE(finished_at, started_at), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_DAY2_destination_id_due_at_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_destination_id_due_at_id_idx ON public.attempts_DAY2 USING btree (destination_id, due_at, id) WHERE ((state = 'waiting'::text) AND (due_at IS NOT NULL));


--
-- Name: attempts_DAY2_destination_id_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_destination_id_expr_idx ON public.attempts_DAY2 USING btree (destination_id, ((id + 0))) WHERE ((state = 'waiting'::text) AND (due_at IS NULL));


--
-- Name: attempts_DAY2_destination_id_expr_idx1; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_destination_id_expr_idx1 ON public.attempts_DAY2 USING btree (destination_id, ((id + 0))) WHERE ((state = 'waiting'::text) AND (due_at IS NOT NULL));


--
-- Name: attempts_DAY2_destination_id_folded_started_at_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_destination_id_folded_started_at_id_idx ON public.attempts_DAY2 USING btree (destination_id, folded, started_at DESC, id DESC) WHERE ((started_at IS NOT NULL) AND (carried_by IS NULL));


--
-- Name: attempts_DAY2_destination_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_destination_id_idx ON public.attempts_DAY2 USING btree (destination_id) WHERE ((state = 'started'::text) AND (carried_by IS NULL));


--
-- Name: attempts_DAY2_destination_id_not_before_deadline_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_destination_id_not_before_deadline_idx ON public.attempts_DAY2 USING btree (destination_id) INCLUDE (not_before, deadline) WHERE (state = 'admitted'::text);


--
-- Name: attempts_DAY2_event_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_event_id_idx ON public.attempts_DAY2 USING btree (event_id);


--
-- Name: attempts_DAY2_expires_at_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_expires_at_idx ON public.attempts_DAY2 USING btree (expires_at) WHERE ((state = 'waiting'::text) AND (expires_at IS NOT NULL));


--
-- Name: attempts_DAY2_micros_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_micros_expr_idx ON public.attempts_DAY2 USING btree (public.micros(COALESCE(finished_at, started_at)), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_DAY2_replay_id_state_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_replay_id_state_idx ON public.attempts_DAY2 USING btree (replay_id, state) WHERE (replay_id IS NOT NULL);


--
-- Name: attempts_DAY2_started_at_worker_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_started_at_worker_id_idx ON public.attempts_DAY2 USING btree (started_at) INCLUDE (worker_id) WHERE (state = 'started'::text);


--
-- Name: attempts_DAY2_tenant_id_coalesce_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_tenant_id_coalesce_expr_idx ON public.attempts_DAY2 USING btree (tenant_id, COALESCE(finished_at, started_at), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_DAY2_tenant_id_destination_id_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY2_tenant_id_destination_id_expr_idx ON public.attempts_DAY2 USING btree (tenant_id, destination_id, ((id + 0)));


--
-- Name: attempts_DAY3_coalesce_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_coalesce_idx ON public.attempts_DAY3 USING brin (COALESCE(finished_at, started_at));


--
-- Name: attempts_DAY3_deadline_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_deadline_idx ON public.attempts_DAY3 USING btree (deadline) WHERE (state = 'admitted'::text);


--
-- Name: attempts_DAY3_destination_id_coalesce_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_destination_id_coalesce_expr_idx ON public.attempts_DAY3 USING btree (destination_id, COALESCE(finished_at, started_at), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_DAY3_destination_id_due_at_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_destination_id_due_at_id_idx ON public.attempts_DAY3 USING btree (destination_id, due_at, id) WHERE ((state = 'waiting'::text) AND (due_at IS NOT NULL));


--
-- Name: attempts_DAY3_destination_id_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_destination_id_expr_idx ON public.attempts_DAY3 USING btree (destination_id, ((id + 0))) WHERE ((state = 'waiting'::text) AND (due_at IS NULL));


--
-- Name: attempts_DAY3_destination_id_expr_idx1; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_destination_id_expr_idx1 ON public.attempts_DAY3 USING btree (destination_id, ((id + 0))) WHERE ((state = 'waiting'::text) AND (due_at IS NOT NULL));


--
-- Name: attempts_DAY3_destination_id_folded_started_at_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_destination_id_folded_started_at_id_idx ON public.attempts_DAY3 USING btree (destination_id, folded, started_at DESC, id DESC) WHERE ((started_at IS NOT NULL) AND (carried_by IS NULL));


--
-- Name: attempts_DAY3_destination_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_destination_id_idx ON public.attempts_DAY3 USING btree (destination_id) WHERE ((state = 'started'::text) AND (carried_by IS NULL));


--
-- Name: attempts_DAY3_destination_id_not_before_deadline_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_destination_id_not_before_deadline_idx ON public.attempts_DAY3 USING btree (destination_id) INCLUDE (not_before, deadline) WHERE (state = 'admitted'::text);


--
-- Name: attempts_DAY3_event_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_event_id_idx ON public.attempts_DAY3 USING btree (event_id);


--
-- Name: attempts_DAY3_expires_at_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_expires_at_idx ON public.attempts_DAY3 USING btree (expires_at) WHERE ((state = 'waiting'::text) AND (expires_at IS NOT NULL));


--
-- Name: attempts_DAY3_micros_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_micros_expr_idx ON public.attempts_DAY3 USING btree (public.micros(COALESCE(finished_at, started_at)), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_DAY3_replay_id_state_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_replay_id_state_idx ON public.attempts_DAY3 USING btree (replay_id, state) WHERE (replay_id IS NOT NULL);


--
-- Name: attempts_DAY3_started_at_worker_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_started_at_worker_id_idx ON public.attempts_DAY3 USING btree (started_at) INCLUDE (worker_id) WHERE (state = 'started'::text);


--
-- Name: attempts_DAY3_tenant_id_coalesce_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_tenant_id_coalesce_expr_idx ON public.attempts_DAY3 USING btree (tenant_id, COALESCE(finished_at, started_at), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_DAY3_tenant_id_destination_id_expr_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_DAY3_tenant_id_destination_id_expr_idx ON public.attempts_DAY3 USING btree (tenant_id, destination_id, ((id + 0)));


--
-- Name: attempts_before_admitted; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_admitted ON public.attempts_before USING btree (destination_id) INCLUDE (not_before, deadline) WHERE (state = 'admitted'::text);


--
-- Name: attempts_before_coalesce_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_coalesce_idx ON public.attempts_before USING brin (COALESCE(finished_at, started_at));


--
-- Name: attempts_before_dead; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_dead ON public.attempts_before USING btree (destination_id, COALESCE(finished_at, started_at), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_before_dead_by_age; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_dead_by_age ON public.attempts_before USING btree (public.micros(COALESCE(finished_at, started_at)), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_before_dead_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_dead_of_tenant ON public.attempts_before USING btree (tenant_id, COALESCE(finished_at, started_at), ((id + 0))) WHERE (dead_letter AND (replayed_at IS NULL));


--
-- Name: attempts_before_deadline; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_deadline ON public.attempts_before USING btree (deadline) WHERE (state = 'admitted'::text);


--
-- Name: attempts_before_due; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_due ON public.attempts_before USING btree (destination_id, due_at, id) WHERE ((state = 'waiting'::text) AND (due_at IS NOT NULL));


--
-- Name: attempts_before_due_by_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_due_by_id ON public.attempts_before USING btree (destination_id, ((id + 0))) WHERE ((state = 'waiting'::text) AND (due_at IS NOT NULL));


--
-- Name: attempts_before_expiring; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_expiring ON public.attempts_before USING btree (expires_at) WHERE ((state = 'waiting'::text) AND (expires_at IS NOT NULL));


--
-- Name: attempts_before_first; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_first ON public.attempts_before USING btree (destination_id, ((id + 0))) WHERE ((state = 'waiting'::text) AND (due_at IS NULL));


--
-- Name: attempts_before_in_flight; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_in_flight ON public.attempts_before USING btree (destination_id) WHERE ((state = 'started'::text) AND (carried_by IS NULL));


--
-- Name: attempts_before_of_event; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_of_event ON public.attempts_before USING btree (event_id);


--
-- Name: attempts_before_of_replay; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_of_replay ON public.attempts_before USING btree (replay_id, state) WHERE (replay_id IS NOT NULL);


--
-- Name: attempts_before_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_of_tenant ON public.attempts_before USING btree (tenant_id, destination_id, ((id + 0)));


--
-- Name: attempts_before_started; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_started ON public.attempts_before USING btree (started_at) INCLUDE (worker_id) WHERE (state = 'started'::text);


--
-- Name: attempts_before_starts; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX attempts_before_starts ON public.attempts_before USING btree (destination_id, folded, started_at DESC, id DESC) WHERE ((started_at IS NOT NULL) AND (carried_by IS NULL));


--
-- Name: destination_managers_of_resource; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX destination_managers_of_resource ON public.destination_managers USING btree (tenant_id, resource);


--
-- Name: destination_secrets_by_key; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX destination_secrets_by_key ON public.destination_secrets USING btree (key_id, id);


--
-- Name: destination_secrets_expiring; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX destination_secrets_expiring ON public.destination_secrets USING btree (expires_at) WHERE (expires_at IS NOT NULL);


--
-- Name: destination_secrets_headers; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX destination_secrets_headers ON public.destination_secrets USING btree (destination_id) WHERE (kind = 'headers'::text);


--
-- Name: destination_secrets_of_destination; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX destination_secrets_of_destination ON public.destination_secrets USING btree (destination_id);


--
-- Name: destinations_by_name; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX destinations_by_name ON public.destinations USING btree (tenant_id, name) WHERE (deleted_at IS NULL);


--
-- Name: destinations_deleted; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX destinations_deleted ON public.destinations USING btree (deleted_at, id) WHERE (deleted_at IS NOT NULL);


--
-- Name: destinations_deleted_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX destinations_deleted_of_tenant ON public.destinations USING btree (tenant_id, deleted_at) WHERE (deleted_at IS NOT NULL);


--
-- Name: destinations_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX destinations_of_tenant ON public.destinations USING btree (tenant_id, id) WHERE (deleted_at IS NULL);


--
-- Name: destinations_to_drain; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX destinations_to_drain ON public.destinations USING btree (deleted_at, id) WHERE ((deleted_at IS NOT NULL) AND (drained_at IS NULL));


--
-- Name: events_by_age; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX events_by_age ON ONLY public.events USING btree (created_at, id);


--
-- Name: events_DAY0_created_at_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX events_DAY0_created_at_id_idx ON public.events_DAY0 USING btree (created_at, id);


--
-- Name: events_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX events_of_tenant ON ONLY public.events USING btree (tenant_id, id);


--
-- Name: events_DAY0_tenant_id_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX events_DAY0_tenant_id_id_idx ON public.events_DAY0 USING btree (tenant_id, id);


--
-- Name: events_DAY1_created_at_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX events_DAY1_created_at_id_idx ON public.events_DAY1 USING btree (created_at, id);


--
-- Name: events_DAY1_tenant_id_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX events_DAY1_tenant_id_id_idx ON public.events_DAY1 USING btree (tenant_id, id);


--
-- Name: events_DAY2_created_at_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX events_DAY2_created_at_id_idx ON public.events_DAY2 USING btree (created_at, id);


--
-- Name: events_DAY2_tenant_id_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX events_DAY2_tenant_id_id_idx ON public.events_DAY2 USING btree (tenant_id, id);


--
-- Name: events_DAY3_created_at_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX events_DAY3_created_at_id_idx ON public.events_DAY3 USING btree (created_at, id);


--
-- Name: events_DAY3_tenant_id_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX events_DAY3_tenant_id_id_idx ON public.events_DAY3 USING btree (tenant_id, id);


--
-- Name: events_timeless_by_age; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX events_timeless_by_age ON public.events_timeless USING btree (created_at, id);


--
-- Name: events_timeless_tenant_id_id_idx; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX events_timeless_tenant_id_id_idx ON public.events_timeless USING btree (tenant_id, id);


--
-- Name: idempotency_keys_expired; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX idempotency_keys_expired ON public.idempotency_keys USING btree (expires_at);


--
-- Name: limit_history_of_destination; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX limit_history_of_destination ON public.limit_history USING btree (destination_id, in_force_from);


--
-- Name: limit_requests_of_destination; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX limit_requests_of_destination ON public.limit_requests USING btree (destination_id);


--
-- Name: limit_requests_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX limit_requests_of_tenant ON public.limit_requests USING btree (tenant_id, created_at);


--
-- Name: limit_requests_open; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX limit_requests_open ON public.limit_requests USING btree (destination_id) WHERE (state = 'open'::text);


--
-- Name: operational_destinations_of_all; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX operational_destinations_of_all ON public.operational_destinations USING btree ("position") WHERE (scope = 'installation'::text);


--
-- Name: operational_destinations_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX operational_destinations_of_tenant ON public.operational_destinations USING btree (tenant_id, "position");


--
-- Name: operational_events_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX operational_events_of_tenant ON public.operational_events USING btree (tenant_id, id);


--
-- Name: operational_events_to_relay; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX operational_events_to_relay ON public.operational_events USING btree (id) WHERE (relayed_at IS NULL);


--
-- Name: outbox_of_lane; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX outbox_of_lane ON public.outbox USING btree (lane, "position");


--
-- Name: replays_finished; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX replays_finished ON public.replays USING btree (finished_at) WHERE (finished_at IS NOT NULL);


--
-- Name: replays_of_destination; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX replays_of_destination ON public.replays USING btree (destination_id);


--
-- Name: replays_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX replays_of_tenant ON public.replays USING btree (tenant_id, id);


--
-- Name: replays_running; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX replays_running ON public.replays USING btree (id) WHERE (state = 'running'::text);


--
-- Name: sessions_by_end; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX sessions_by_end ON public.sessions USING btree (expires_at);


--
-- Name: sessions_of_tenant; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX sessions_of_tenant ON public.sessions USING btree (tenant_id);


--
-- Name: smart_history_of_destination; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX smart_history_of_destination ON public.smart_history USING btree (destination_id, in_force_from, id);


--
-- Name: start_buckets_by_age; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX start_buckets_by_age ON public.start_buckets USING btree (period, public.micros(ends_at));


--
-- Name: tallies_by_age; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX tallies_by_age ON public.tallies USING btree (slot, public.micros(ends_at));


--
-- Name: tenants_of_tier; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX tenants_of_tier ON public.tenants USING btree (tier);


--
-- Name: attempts_DAY0_coalesce_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_by_end ATTACH PARTITION public.attempts_DAY0_coalesce_idx;


--
-- Name: attempts_DAY0_deadline_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_deadline ATTACH PARTITION public.attempts_DAY0_deadline_idx;


--
-- Name: attempts_DAY0_destination_id_coalesce_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead ATTACH PARTITION public.attempts_DAY0_destination_id_coalesce_expr_idx;


--
-- Name: attempts_DAY0_destination_id_due_at_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_due ATTACH PARTITION public.attempts_DAY0_destination_id_due_at_id_idx;


--
-- Name: attempts_DAY0_destination_id_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_first ATTACH PARTITION public.attempts_DAY0_destination_id_expr_idx;


--
-- Name: attempts_DAY0_destination_id_expr_idx1; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_due_by_id ATTACH PARTITION public.attempts_DAY0_destination_id_expr_idx1;


--
-- Name: attempts_DAY0_destination_id_folded_started_at_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_starts ATTACH PARTITION public.attempts_DAY0_destination_id_folded_started_at_id_idx;


--
-- Name: attempts_DAY0_destination_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_in_flight ATTACH PARTITION public.attempts_DAY0_destination_id_idx;


--
-- Name: attempts_DAY0_destination_id_not_before_deadline_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_admitted ATTACH PARTITION public.attempts_DAY0_destination_id_not_before_deadline_idx;


--
-- Name: attempts_DAY0_event_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_event ATTACH PARTITION public.attempts_DAY0_event_id_idx;


--
-- Name: attempts_DAY0_expires_at_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_expiring ATTACH PARTITION public.attempts_DAY0_expires_at_idx;


--
-- Name: attempts_DAY0_micros_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead_by_age ATTACH PARTITION public.attempts_DAY0_micros_expr_idx;


--
-- Name: attempts_DAY0_pkey; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_pkey ATTACH PARTITION public.attempts_DAY0_pkey;


--
-- Name: attempts_DAY0_replay_id_state_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_replay ATTACH PARTITION public.attempts_DAY0_replay_id_state_idx;


--
-- Name: attempts_DAY0_started_at_worker_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_started ATTACH PARTITION public.attempts_DAY0_started_at_worker_id_idx;


--
-- Name: attempts_DAY0_tenant_id_coalesce_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead_of_tenant ATTACH PARTITION public.attempts_DAY0_tenant_id_coalesce_expr_idx;


--
-- Name: attempts_DAY0_tenant_id_destination_id_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_tenant ATTACH PARTITION public.attempts_DAY0_tenant_id_destination_id_expr_idx;


--
-- Name: attempts_DAY1_coalesce_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_by_end ATTACH PARTITION public.attempts_DAY1_coalesce_idx;


--
-- Name: attempts_DAY1_deadline_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_deadline ATTACH PARTITION public.attempts_DAY1_deadline_idx;


--
-- Name: attempts_DAY1_destination_id_coalesce_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead ATTACH PARTITION public.attempts_DAY1_destination_id_coalesce_expr_idx;


--
-- Name: attempts_DAY1_destination_id_due_at_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_due ATTACH PARTITION public.attempts_DAY1_destination_id_due_at_id_idx;


--
-- Name: attempts_DAY1_destination_id_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_first ATTACH PARTITION public.attempts_DAY1_destination_id_expr_idx;


--
-- Name: attempts_DAY1_destination_id_expr_idx1; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_due_by_id ATTACH PARTITION public.attempts_DAY1_destination_id_expr_idx1;


--
-- Name: attempts_DAY1_destination_id_folded_started_at_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_starts ATTACH PARTITION public.attempts_DAY1_destination_id_folded_started_at_id_idx;


--
-- Name: attempts_DAY1_destination_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_in_flight ATTACH PARTITION public.attempts_DAY1_destination_id_idx;


--
-- Name: attempts_DAY1_destination_id_not_before_deadline_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_admitted ATTACH PARTITION public.attempts_DAY1_destination_id_not_before_deadline_idx;


--
-- Name: attempts_DAY1_event_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_event ATTACH PARTITION public.attempts_DAY1_event_id_idx;


--
-- Name: attempts_DAY1_expires_at_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_expiring ATTACH PARTITION public.attempts_DAY1_expires_at_idx;


--
-- Name: attempts_DAY1_micros_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead_by_age ATTACH PARTITION public.attempts_DAY1_micros_expr_idx;


--
-- Name: attempts_DAY1_pkey; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_pkey ATTACH PARTITION public.attempts_DAY1_pkey;


--
-- Name: attempts_DAY1_replay_id_state_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_replay ATTACH PARTITION public.attempts_DAY1_replay_id_state_idx;


--
-- Name: attempts_DAY1_started_at_worker_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_started ATTACH PARTITION public.attempts_DAY1_started_at_worker_id_idx;


--
-- Name: attempts_DAY1_tenant_id_coalesce_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead_of_tenant ATTACH PARTITION public.attempts_DAY1_tenant_id_coalesce_expr_idx;


--
-- Name: attempts_DAY1_tenant_id_destination_id_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_tenant ATTACH PARTITION public.attempts_DAY1_tenant_id_destination_id_expr_idx;


--
-- Name: attempts_DAY2_coalesce_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_by_end ATTACH PARTITION public.attempts_DAY2_coalesce_idx;


--
-- Name: attempts_DAY2_deadline_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_deadline ATTACH PARTITION public.attempts_DAY2_deadline_idx;


--
-- Name: attempts_DAY2_destination_id_coalesce_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead ATTACH PARTITION public.attempts_DAY2_destination_id_coalesce_expr_idx;


--
-- Name: attempts_DAY2_destination_id_due_at_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_due ATTACH PARTITION public.attempts_DAY2_destination_id_due_at_id_idx;


--
-- Name: attempts_DAY2_destination_id_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_first ATTACH PARTITION public.attempts_DAY2_destination_id_expr_idx;


--
-- Name: attempts_DAY2_destination_id_expr_idx1; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_due_by_id ATTACH PARTITION public.attempts_DAY2_destination_id_expr_idx1;


--
-- Name: attempts_DAY2_destination_id_folded_started_at_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_starts ATTACH PARTITION public.attempts_DAY2_destination_id_folded_started_at_id_idx;


--
-- Name: attempts_DAY2_destination_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_in_flight ATTACH PARTITION public.attempts_DAY2_destination_id_idx;


--
-- Name: attempts_DAY2_destination_id_not_before_deadline_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_admitted ATTACH PARTITION public.attempts_DAY2_destination_id_not_before_deadline_idx;


--
-- Name: attempts_DAY2_event_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_event ATTACH PARTITION public.attempts_DAY2_event_id_idx;


--
-- Name: attempts_DAY2_expires_at_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_expiring ATTACH PARTITION public.attempts_DAY2_expires_at_idx;


--
-- Name: attempts_DAY2_micros_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead_by_age ATTACH PARTITION public.attempts_DAY2_micros_expr_idx;


--
-- Name: attempts_DAY2_pkey; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_pkey ATTACH PARTITION public.attempts_DAY2_pkey;


--
-- Name: attempts_DAY2_replay_id_state_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_replay ATTACH PARTITION public.attempts_DAY2_replay_id_state_idx;


--
-- Name: attempts_DAY2_started_at_worker_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_started ATTACH PARTITION public.attempts_DAY2_started_at_worker_id_idx;


--
-- Name: attempts_DAY2_tenant_id_coalesce_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead_of_tenant ATTACH PARTITION public.attempts_DAY2_tenant_id_coalesce_expr_idx;


--
-- Name: attempts_DAY2_tenant_id_destination_id_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_tenant ATTACH PARTITION public.attempts_DAY2_tenant_id_destination_id_expr_idx;


--
-- Name: attempts_DAY3_coalesce_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_by_end ATTACH PARTITION public.attempts_DAY3_coalesce_idx;


--
-- Name: attempts_DAY3_deadline_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_deadline ATTACH PARTITION public.attempts_DAY3_deadline_idx;


--
-- Name: attempts_DAY3_destination_id_coalesce_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead ATTACH PARTITION public.attempts_DAY3_destination_id_coalesce_expr_idx;


--
-- Name: attempts_DAY3_destination_id_due_at_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_due ATTACH PARTITION public.attempts_DAY3_destination_id_due_at_id_idx;


--
-- Name: attempts_DAY3_destination_id_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_first ATTACH PARTITION public.attempts_DAY3_destination_id_expr_idx;


--
-- Name: attempts_DAY3_destination_id_expr_idx1; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_due_by_id ATTACH PARTITION public.attempts_DAY3_destination_id_expr_idx1;


--
-- Name: attempts_DAY3_destination_id_folded_started_at_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_starts ATTACH PARTITION public.attempts_DAY3_destination_id_folded_started_at_id_idx;


--
-- Name: attempts_DAY3_destination_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_in_flight ATTACH PARTITION public.attempts_DAY3_destination_id_idx;


--
-- Name: attempts_DAY3_destination_id_not_before_deadline_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_admitted ATTACH PARTITION public.attempts_DAY3_destination_id_not_before_deadline_idx;


--
-- Name: attempts_DAY3_event_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_event ATTACH PARTITION public.attempts_DAY3_event_id_idx;


--
-- Name: attempts_DAY3_expires_at_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_expiring ATTACH PARTITION public.attempts_DAY3_expires_at_idx;


--
-- Name: attempts_DAY3_micros_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead_by_age ATTACH PARTITION public.attempts_DAY3_micros_expr_idx;


--
-- Name: attempts_DAY3_pkey; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_pkey ATTACH PARTITION public.attempts_DAY3_pkey;


--
-- Name: attempts_DAY3_replay_id_state_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_replay ATTACH PARTITION public.attempts_DAY3_replay_id_state_idx;


--
-- Name: attempts_DAY3_started_at_worker_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_started ATTACH PARTITION public.attempts_DAY3_started_at_worker_id_idx;


--
-- Name: attempts_DAY3_tenant_id_coalesce_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead_of_tenant ATTACH PARTITION public.attempts_DAY3_tenant_id_coalesce_expr_idx;


--
-- Name: attempts_DAY3_tenant_id_destination_id_expr_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_tenant ATTACH PARTITION public.attempts_DAY3_tenant_id_destination_id_expr_idx;


--
-- Name: attempts_before_admitted; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_admitted ATTACH PARTITION public.attempts_before_admitted;


--
-- Name: attempts_before_coalesce_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_by_end ATTACH PARTITION public.attempts_before_coalesce_idx;


--
-- Name: attempts_before_dead; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead ATTACH PARTITION public.attempts_before_dead;


--
-- Name: attempts_before_dead_by_age; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead_by_age ATTACH PARTITION public.attempts_before_dead_by_age;


--
-- Name: attempts_before_dead_of_tenant; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_dead_of_tenant ATTACH PARTITION public.attempts_before_dead_of_tenant;


--
-- Name: attempts_before_deadline; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_deadline ATTACH PARTITION public.attempts_before_deadline;


--
-- Name: attempts_before_due; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_due ATTACH PARTITION public.attempts_before_due;


--
-- Name: attempts_before_due_by_id; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_due_by_id ATTACH PARTITION public.attempts_before_due_by_id;


--
-- Name: attempts_before_expiring; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_expiring ATTACH PARTITION public.attempts_before_expiring;


--
-- Name: attempts_before_first; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_first ATTACH PARTITION public.attempts_before_first;


--
-- Name: attempts_before_in_flight; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_in_flight ATTACH PARTITION public.attempts_before_in_flight;


--
-- Name: attempts_before_of_event; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_event ATTACH PARTITION public.attempts_before_of_event;


--
-- Name: attempts_before_of_replay; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_replay ATTACH PARTITION public.attempts_before_of_replay;


--
-- Name: attempts_before_of_tenant; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_of_tenant ATTACH PARTITION public.attempts_before_of_tenant;


--
-- Name: attempts_before_pkey; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_pkey ATTACH PARTITION public.attempts_before_pkey;


--
-- Name: attempts_before_started; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_started ATTACH PARTITION public.attempts_before_started;


--
-- Name: attempts_before_starts; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.attempts_starts ATTACH PARTITION public.attempts_before_starts;


--
-- Name: events_DAY0_created_at_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_by_age ATTACH PARTITION public.events_DAY0_created_at_id_idx;


--
-- Name: events_DAY0_pkey; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_pkey ATTACH PARTITION public.events_DAY0_pkey;


--
-- Name: events_DAY0_tenant_id_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_of_tenant ATTACH PARTITION public.events_DAY0_tenant_id_id_idx;


--
-- Name: events_DAY1_created_at_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_by_age ATTACH PARTITION public.events_DAY1_created_at_id_idx;


--
-- Name: events_DAY1_pkey; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_pkey ATTACH PARTITION public.events_DAY1_pkey;


--
-- Name: events_DAY1_tenant_id_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_of_tenant ATTACH PARTITION public.events_DAY1_tenant_id_id_idx;


--
-- Name: events_DAY2_created_at_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_by_age ATTACH PARTITION public.events_DAY2_created_at_id_idx;


--
-- Name: events_DAY2_pkey; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_pkey ATTACH PARTITION public.events_DAY2_pkey;


--
-- Name: events_DAY2_tenant_id_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_of_tenant ATTACH PARTITION public.events_DAY2_tenant_id_id_idx;


--
-- Name: events_DAY3_created_at_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_by_age ATTACH PARTITION public.events_DAY3_created_at_id_idx;


--
-- Name: events_DAY3_pkey; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_pkey ATTACH PARTITION public.events_DAY3_pkey;


--
-- Name: events_DAY3_tenant_id_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_of_tenant ATTACH PARTITION public.events_DAY3_tenant_id_id_idx;


--
-- Name: events_timeless_by_age; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_by_age ATTACH PARTITION public.events_timeless_by_age;


--
-- Name: events_timeless_pkey; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_pkey ATTACH PARTITION public.events_timeless_pkey;


--
-- Name: events_timeless_tenant_id_id_idx; Type: INDEX ATTACH; Schema: public; Owner: -
--

ALTER INDEX public.events_of_tenant ATTACH PARTITION public.events_timeless_tenant_id_id_idx;


--
-- Name: attempts attempts_tally_dead_letter; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER attempts_tally_dead_letter AFTER UPDATE OF dead_letter ON public.attempts FOR EACH ROW WHEN ((new.dead_letter AND (NOT old.dead_letter))) EXECUTE FUNCTION public.attempts_tally_dead_letter();


--
-- Name: destinations destinations_after_insert; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER destinations_after_insert AFTER INSERT ON public.destinations REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.destinations_after_insert();


--
-- Name: destinations destinations_after_update; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER destinations_after_update AFTER UPDATE ON public.destinations REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.destinations_after_update();


--
-- Name: destinations destinations_before_delete; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER destinations_before_delete BEFORE DELETE ON public.destinations FOR EACH ROW EXECUTE FUNCTION public.destinations_before_delete();


--
-- Name: destinations destinations_before_traces; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER destinations_before_traces BEFORE UPDATE ON public.destinations FOR EACH ROW WHEN ((old.pass_traceparent <> new.pass_traceparent)) EXECUTE FUNCTION public.destinations_before_traces();


--
-- Name: destinations destinations_before_update; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER destinations_before_update BEFORE UPDATE ON public.destinations FOR EACH ROW EXECUTE FUNCTION public.destinations_before_update();


--
-- Name: destinations destinations_forget_health; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER destinations_forget_health AFTER UPDATE ON public.destinations FOR EACH ROW WHEN (((old.url <> new.url) OR ((old.state <> 'active'::text) AND (new.state = 'active'::text)) OR ((old.deleted_at IS NULL) AND (new.deleted_at IS NOT NULL)))) EXECUTE FUNCTION public.destinations_forget_health();


--
-- Name: destinations destinations_forget_manager; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER destinations_forget_manager AFTER UPDATE OF deleted_at ON public.destinations FOR EACH ROW WHEN (((old.deleted_at IS NULL) AND (new.deleted_at IS NOT NULL))) EXECUTE FUNCTION public.destinations_forget_manager();


--
-- Name: destinations destinations_forget_operational; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER destinations_forget_operational AFTER UPDATE OF deleted_at ON public.destinations FOR EACH ROW WHEN (((old.deleted_at IS NULL) AND (new.deleted_at IS NOT NULL))) EXECUTE FUNCTION public.destinations_forget_operational();


--
-- Name: destinations destinations_forget_secrets; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER destinations_forget_secrets AFTER UPDATE OF deleted_at ON public.destinations FOR EACH ROW WHEN (((old.deleted_at IS NULL) AND (new.deleted_at IS NOT NULL))) EXECUTE FUNCTION public.destinations_forget_secrets();


--
-- Name: destinations destinations_insert_smart; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER destinations_insert_smart AFTER INSERT ON public.destinations FOR EACH ROW WHEN (new.smart_delivery) EXECUTE FUNCTION public.destinations_set_smart();


--
-- Name: destinations destinations_set_smart; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER destinations_set_smart AFTER UPDATE ON public.destinations FOR EACH ROW WHEN (((old.smart_delivery <> new.smart_delivery) OR (new.smart_delivery AND (old.url <> new.url)) OR (new.smart_delivery AND (old.deleted_at IS NULL) AND (new.deleted_at IS NOT NULL)))) EXECUTE FUNCTION public.destinations_set_smart();


--
-- Name: outbox outbox_after_insert; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER outbox_after_insert AFTER INSERT ON public.outbox FOR EACH STATEMENT EXECUTE FUNCTION public.outbox_after_insert();


--
-- Name: tenants tenants_after_update; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER tenants_after_update AFTER UPDATE ON public.tenants REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.tenants_after_update();


--
-- Name: tiers tiers_after_update; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER tiers_after_update AFTER UPDATE ON public.tiers REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.tiers_after_update();


--
-- Name: api_keys api_keys_tenant_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES public.tenants(id);


--
-- Name: destination_managers destination_managers_destination_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.destination_managers
    ADD CONSTRAINT destination_managers_destination_id_fkey FOREIGN KEY (destination_id) REFERENCES public.destinations(id);


--
-- Name: destination_secrets destination_secrets_destination_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.destination_secrets
    ADD CONSTRAINT destination_secrets_destination_id_fkey FOREIGN KEY (destination_id) REFERENCES public.destinations(id);


--
-- Name: destinations destinations_tenant_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.destinations
    ADD CONSTRAINT destinations_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES public.tenants(id);


--
-- Name: limit_requests limit_requests_destination_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.limit_requests
    ADD CONSTRAINT limit_requests_destination_id_fkey FOREIGN KEY (destination_id) REFERENCES public.destinations(id);


--
-- Name: limit_requests limit_requests_tenant_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.limit_requests
    ADD CONSTRAINT limit_requests_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES public.tenants(id);


--
-- Name: replays replays_destination_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.replays
    ADD CONSTRAINT replays_destination_id_fkey FOREIGN KEY (destination_id) REFERENCES public.destinations(id);


--
-- Name: sessions sessions_tenant_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES public.tenants(id);


--
-- Name: tenants tenants_tier_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT tenants_tier_fkey FOREIGN KEY (tier) REFERENCES public.tiers(name);


--
-- PostgreSQL database dump complete
--


