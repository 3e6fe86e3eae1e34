-- Paceline's schema on Postgres, by topic: each object is defined once. The SQLite half
-- says the same, table by table; a test compares the two.
--
-- Everything lives in the schema that our connections' search_path names first:
-- `public`, unless the URL says otherwise. Times are timestamptz, read with
-- clock_timestamp() and never now(): now() is when the transaction began, and a limit is
-- judged by when things happened.

-- ---------------------------------------------------------------------------
-- Time on the wire: whole microseconds since the Unix epoch, exact both ways until the
-- year 2106 (they go through double precision, which takes half of what numeric does).
-- Both are inlined into the statements that call them, so they cost no call.

create function micros(at timestamptz) returns bigint
    language sql immutable parallel safe
    return (date_part('epoch', at - timestamptz '1970-01-01 00:00:00+00') * 1000000)::bigint;

-- Stable and not immutable because `timestamptz + interval` is: in general it
-- depends on the time zone. A number of microseconds does not. The product
-- with an interval is in double precision, exact up to 2^53 µs: the year 2255.
create function from_micros(micros bigint) returns timestamptz
    language sql stable parallel safe
    return timestamptz '1970-01-01 00:00:00+00' + micros * interval '1 microsecond';

-- ---------------------------------------------------------------------------
-- Limits.

-- The eleven columns of a destination's or a tier's limits, as one value.
create type limit_settings as (
    limit_per_second integer,
    limit_per_minute integer,
    limit_per_hour integer,
    limit_per_day integer,
    unlimited boolean,
    burst integer,
    shape text,
    max_in_flight integer,
    safety_margin double precision,
    margin_cap double precision,
    count text,
    allowed_per_minute integer
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
        effective.margin_cap := own.margin_cap;
        effective.count := own.count;
        effective.allowed_per_minute := own.allowed_per_minute;
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
    -- Who counts something else allows other things.
    if coalesce(after.count, 'start') <> coalesce(before.count, 'start')
        or coalesce(after.margin_cap, 0.01) > coalesce(before.margin_cap, 0.01)
    then
        return false;
    end if;
    -- Null is measured, and may be larger or smaller than one that is set.
    if (after.safety_margin is distinct from before.safety_margin
            and coalesce(after.safety_margin, 1) > coalesce(before.safety_margin, 0))
        or max_in_flight_of(after) < max_in_flight_of(before)
        or coalesce(after.allowed_per_minute, 2147483647)
            < coalesce(before.allowed_per_minute, 2147483647)
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
        constraint tiers_check_max_in_flight check (max_in_flight between 1 and 1000000000),
    -- What each tenant of the tier gets where its own says nothing; null: no bound.
    tenant_max_in_flight integer
        constraint tiers_check_tenant_max_in_flight
        check (tenant_max_in_flight between 1 and 1000000000),
    -- Destinations that one of its tenants may have, and may have deleted within the last
    -- hour. Null: no bound. A trigger holds whoever inserts them by SQL to it, but for the
    -- default tenant's, which are the installation's own.
    tenant_max_destinations integer default 10000
        constraint tiers_check_tenant_max_destinations
        check (tenant_max_destinations between 1 and 1000000000),
    -- The most that its tenants may set for their destinations: starts per second in the
    -- long run, how many may start at one instant, and how many may be in flight. Null: no
    -- ceiling. The default tenant is the installation's own, and has none.
    ceiling_per_second double precision
        constraint tiers_check_ceiling_per_second
        check (ceiling_per_second > 0 and ceiling_per_second <= 1000000000),
    ceiling_at_once integer
        constraint tiers_check_ceiling_at_once check (ceiling_at_once between 1 and 1000000000),
    ceiling_in_flight integer
        constraint tiers_check_ceiling_in_flight
        check (ceiling_in_flight between 1 and 1000000000),
    -- And of batches: events in one request, and bytes of their payloads.
    ceiling_batch_events integer
        constraint tiers_check_ceiling_batch_events check (ceiling_batch_events between 1 and 500),
    ceiling_batch_bytes integer
        constraint tiers_check_ceiling_batch_bytes
        check (ceiling_batch_bytes between 1 and 1000000),
    -- And how old their events may become before they start. It holds where a destination
    -- says no age as well.
    ceiling_age_seconds integer
        constraint tiers_check_ceiling_age_seconds
        check (ceiling_age_seconds between 1 and 2592000),
    -- Null: what the process is configured with.
    tenant_ingest_per_second integer
        constraint tiers_check_tenant_ingest_per_second
        check (tenant_ingest_per_second between 1 and 1000000000)
);

insert into tiers (name, limit_per_second, burst, shape) values
    ('free', 2, 10, 'token_bucket'),
    ('standard', 10, 50, 'token_bucket'),
    ('enterprise', 100, 500, 'token_bucket');

create table tenants (
    id uuid primary key,
    name text not null,
    tier text not null references tiers (name),
    created_at timestamptz not null default clock_timestamp(),
    -- Attempts queued and in flight at once, of all its destinations. Null: the
    -- tier's; null there as well: no bound.
    max_in_flight integer
        constraint tenants_check_max_in_flight check (max_in_flight between 1 and 1000000000),
    -- Events that it may hand in a second, at each API process. Null: the tier's;
    -- null there as well: what the process is configured with.
    ingest_per_second integer
        constraint tenants_check_ingest_per_second
        check (ingest_per_second between 1 and 1000000000),
    -- How many destinations an operator has granted it beyond its tier's bound.
    granted_destinations integer
        constraint tenants_check_granted_destinations
        check (granted_destinations between 1 and 1000000000),
    -- What the platform calls it in its own books.
    external_id text
        constraint tenants_check_external_id check (external_id ~ '^[-A-Za-z0-9._~:@+]{1,200}$'),
    -- When operators are told that too few of its requests succeed; null for the defaults.
    alert_success_percent integer
        constraint tenants_check_alert_success_percent
        check (alert_success_percent between 0 and 100),
    alert_success_seconds integer
        constraint tenants_check_alert_success_seconds
        check (alert_success_seconds between 300 and 86400),
    alert_success_least integer
        constraint tenants_check_alert_success_least
        check (alert_success_least between 1 and 1000000),
    -- From then on it is being deleted: it can do nothing any more, and its destinations
    -- go step by step.
    deleted_at timestamptz,
    -- Of a deleted one: when the last of them had been deleted. It is forgotten with them.
    emptied_at timestamptz
        constraint tenants_check_emptied_at
        check (emptied_at is null or deleted_at is not null)
);

create unique index tenants_by_external_id on tenants (external_id)
    where external_id is not null and deleted_at is null;
create index tenants_to_empty on tenants (deleted_at, id)
    where deleted_at is not null and emptied_at is null;
create index tenants_of_tier on tenants (tier);

-- The tenant that a single API key stands for.
insert into tenants (id, name, tier)
values ('00000000-0000-0000-0000-000000000001', 'default', 'standard');

-- Limit groups: what several destinations of a tenant may start together. A group counts
-- its members' starts one by one, so its limits are small. 0 pauses all of them. Admission
-- of a member locks the row.
create table limit_groups (
    tenant_id uuid not null references tenants (id),
    name text not null
        constraint limit_groups_check_name
        check (name ~ '^[-A-Za-z0-9._~:@+]{1,100}$' and name not in ('.', '..')),
    limit_per_second integer
        constraint limit_groups_check_limit_per_second
        check (limit_per_second between 0 and 2000),
    limit_per_minute integer
        constraint limit_groups_check_limit_per_minute
        check (limit_per_minute between 0 and 2000),
    limit_per_hour integer
        constraint limit_groups_check_limit_per_hour check (limit_per_hour between 0 and 2000),
    limit_per_day integer
        constraint limit_groups_check_limit_per_day check (limit_per_day between 0 and 2000),
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant_id, name),
    constraint limit_groups_check_limits check (
        num_nonnulls(limit_per_second, limit_per_minute, limit_per_hour, limit_per_day) > 0
    )
);

-- Who was a member from when to when. What one started meanwhile counts for the group as
-- long as it is in a window, also when it has left.
create table limit_group_members (
    id bigint generated always as identity primary key,
    tenant_id uuid not null,
    limit_group text not null,
    destination_id uuid not null,
    joined_at timestamptz not null,
    left_at timestamptz
);

create index limit_group_members_of_group
    on limit_group_members (tenant_id, limit_group, left_at);
create index limit_group_members_of_destination on limit_group_members (destination_id);

-- What a group allowed from when on; all null once it is deleted.
create table limit_group_history (
    id bigint generated always as identity primary key,
    tenant_id uuid not null,
    limit_group text not null,
    in_force_from timestamptz not null,
    limit_per_second integer,
    limit_per_minute integer,
    limit_per_hour integer,
    limit_per_day integer
);

create index limit_group_history_of_group
    on limit_group_history (tenant_id, limit_group, in_force_from);

-- Nothing but its owner's changes updates a destination's row: admission locks it and
-- looks whether it is as it was read, and what admission writes is in `pacing`.
create table destinations (
    id uuid primary key,
    tenant_id uuid not null references tenants (id),
    name text not null default '',
    url text not null,
    event_types text[] not null default '{}',
    -- Which events of these types it takes, by their payloads (domain::filter). Null: all.
    filter jsonb
        constraint destinations_check_filter check (
            jsonb_typeof(filter) = 'object' and octet_length(filter::text) <= 65536
        ),
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
    -- Null: measured (response_times).
    safety_margin double precision
        -- NaN is larger than every number, so this refuses it as well.
        constraint destinations_check_safety_margin check (safety_margin between 0 and 1),
    -- The largest that is measured, as a part of the period. Null: a hundredth.
    margin_cap double precision
        constraint destinations_check_margin_cap check (margin_cap between 0 and 1),
    -- Until when a request counts. Null: until its start.
    count text
        constraint destinations_check_count check (count in ('start', 'response')),
    -- What an operator has granted it beyond its tier's ceiling.
    granted_per_second double precision
        constraint destinations_check_granted_per_second
        check (granted_per_second > 0 and granted_per_second <= 1000000000),
    granted_at_once integer
        constraint destinations_check_granted_at_once
        check (granted_at_once between 1 and 1000000000),
    granted_in_flight integer
        constraint destinations_check_granted_in_flight
        check (granted_in_flight between 1 and 1000000000),
    granted_batch_events integer
        constraint destinations_check_granted_batch_events
        check (granted_batch_events between 1 and 500),
    granted_batch_bytes integer
        constraint destinations_check_granted_batch_bytes
        check (granted_batch_bytes between 1 and 1000000),
    state text not null default 'active'
        constraint destinations_check_state check (state in ('active', 'paused', 'disabled')),
    epoch bigint not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    deleted_at timestamptz,
    -- Of a deleted one: when nothing of it waited or was under way any more, so
    -- that the reaper need not look at it again.
    drained_at timestamptz
        constraint destinations_check_drained_at
        check (drained_at is null or deleted_at is not null),
    -- When its breaker opens. Null is the default: 20 failures in a row, which go on
    -- for five seconds, and five days.
    breaker_failures integer
        constraint destinations_check_breaker_failures
        check (breaker_failures between 0 and 1000000000),
    breaker_failing_for_seconds integer
        constraint destinations_check_breaker_failing_for_seconds
        check (breaker_failing_for_seconds between 0 and 1000000000),
    breaker_disable_after_seconds integer
        constraint destinations_check_breaker_disable_after_seconds
        check (breaker_disable_after_seconds between 0 and 1000000000),
    -- What is not the default of domain::retry, as JSON. Read when a start is
    -- claimed; a change of it revokes nothing.
    retry_policy jsonb
        constraint destinations_check_retry_policy check (
            jsonb_typeof(retry_policy) = 'object'
            and coalesce((retry_policy ->> 'max_tries')::integer, 1) between 1 and 100
        ),
    -- How old its events may become before they start; null for what its tier says. Holds
    -- for events that are accepted after a change.
    max_age_ms bigint
        constraint destinations_check_max_age_ms check (max_age_ms between 1 and 2592000000),
    -- That of its tier, kept here by triggers, so that who accepts an event reads one row.
    -- Null: any age.
    tier_age_ms bigint,
    smart_delivery boolean not null default false,
    -- When its owner is told. Null is the default: 10,000 attempts, 60 seconds. 0 is
    -- never.
    alert_backlog integer
        constraint destinations_check_alert_backlog
        check (alert_backlog between 0 and 100000),
    alert_under_delivery_seconds integer
        constraint destinations_check_alert_under_delivery_seconds
        check (alert_under_delivery_seconds between 0 and 86400),
    -- It fails when so many of a hundred answers are failures.
    alert_failing_percent integer
        constraint destinations_check_alert_failing_percent
        check (alert_failing_percent between 0 and 100),
    -- Several events in one request. Null events: one event a request. The other two
    -- are what domain::batch says where they are null. Numbers are read when a batch
    -- is composed, so a change of them revokes nothing; to turn batches on or off
    -- bumps the epoch.
    batch_max_events integer
        constraint destinations_check_batch_max_events check (batch_max_events between 1 and 500),
    batch_max_bytes integer
        constraint destinations_check_batch_max_bytes
        check (batch_max_bytes between 1 and 1000000),
    batch_max_wait_ms integer
        constraint destinations_check_batch_max_wait_ms
        check (batch_max_wait_ms between 0 and 60000),
    -- Whether its receiver is sent the trace's headers.
    pass_traceparent boolean not null default false,
    -- Whether its receiver is asked before anything is sent to it (handshakes).
    handshake text not null default 'none'
        constraint destinations_check_handshake check (handshake in ('none', 'cloud_events')),
    -- Starts per minute that its receiver allows: what the handshake came to. Null: as
    -- many as are configured. 0: none, it has not allowed them.
    allowed_per_minute integer
        constraint destinations_check_allowed_per_minute
        check (allowed_per_minute between 0 and 1000000000),
    -- What the platform calls it in its own books.
    external_id text
        constraint destinations_check_external_id check (external_id ~ '^[-A-Za-z0-9._~:@+]{1,200}$'),
    -- The limit group that its starts count for as well, by name: one of its tenant's.
    limit_group text,
    constraint destinations_check_limit_group foreign key (tenant_id, limit_group)
        references limit_groups (tenant_id, name)
);

create index destinations_of_group on destinations (tenant_id, limit_group)
    where limit_group is not null;
create unique index destinations_by_external_id on destinations (tenant_id, external_id)
    where external_id is not null and deleted_at is null;

create index destinations_of_tenant on destinations (tenant_id, id) where deleted_at is null;
create index destinations_deleted on destinations (deleted_at, id) where deleted_at is not null;
-- The few whose backlog has yet to be cancelled, those first that were deleted first.
create index destinations_to_drain on destinations (deleted_at, id)
    where deleted_at is not null and drained_at is null;
-- Those that were deleted within the last hour.
create index destinations_deleted_of_tenant on destinations (tenant_id, deleted_at)
    where deleted_at is not null;
-- A resource of Kubernetes looks whether there is one of its name already.
create index destinations_by_name on destinations (tenant_id, name) where deleted_at is null;

-- A change that has yet to be looked at; a later change is another version.
create table destination_marks (
    destination_id uuid primary key,
    version bigint not null
);

create sequence destination_mark_versions;

-- What was in force from when on, resolved against the tier; and where requests went.
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
    safety_margin double precision,
    margin_cap double precision,
    count text,
    allowed_per_minute integer,
    state text not null,
    url text not null
);

create index limit_history_of_destination on limit_history (destination_id, in_force_from);

-- What admission remembers of a destination, written by it and by changes of limits under
-- the destination's lock, and by a claim that defers it: several times a second, so there is
-- room for updates in place. Whoever changes what a run decides by updates this row or the
-- destination's: a run that has read either before is not written.
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
    held_until timestamptz,
    -- Nothing is admitted before that: a worker had no place for it. Only admission
    -- asks; what has a permit already may start.
    deferred_until timestamptz
) with (fillfactor = 50);
