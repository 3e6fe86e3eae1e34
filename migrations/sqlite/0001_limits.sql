-- Paceline's schema on SQLite, by topic: each object is defined once. The Postgres half
-- says the same, table by table; a test compares the two.
--
-- Times are whole microseconds since the Unix epoch, ids are UUIDs as lower-case
-- text, so that a user's SQL looks the same in both. Everything here, triggers
-- included, works in a plain `sqlite3` shell from version 3.37 on.

-- ---------------------------------------------------------------------------
-- Limits.

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
    unlimited integer not null default 0
        constraint tiers_check_unlimited check (
            unlimited = 0
            or (unlimited = 1
                and coalesce(limit_per_second, limit_per_minute, limit_per_hour, limit_per_day)
                    is null)
        ),
    burst integer
        constraint tiers_check_burst check (
            burst between 1 and 1000000000 and (shape is not 'leaky_bucket' or burst = 1)
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
    ceiling_per_second real
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
) strict;

insert into tiers (name, limit_per_second, burst, shape) values
    ('free', 2, 10, 'token_bucket'),
    ('standard', 10, 50, 'token_bucket'),
    ('enterprise', 100, 500, 'token_bucket');

create table tenants (
    id text primary key,
    name text not null,
    tier text not null references tiers (name),
    created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000),
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
        constraint tenants_check_external_id check (
            length(external_id) between 1 and 200
            and external_id not glob '*[^-A-Za-z0-9._~:@+]*'
        ),
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
    deleted_at integer,
    -- Of a deleted one: when the last of them had been deleted. It is forgotten with them.
    emptied_at integer
        constraint tenants_check_emptied_at
        check (emptied_at is null or deleted_at is not null)
) strict;

create unique index tenants_by_external_id on tenants (external_id)
    where external_id is not null and deleted_at is null;
create index tenants_to_empty on tenants (deleted_at, id)
    where deleted_at is not null and emptied_at is null;
create index tenants_of_tier on tenants (tier);

-- The tenant that a single API key stands for.
insert into tenants (id, name, tier)
values ('00000000-0000-0000-0000-000000000001', 'default', 'standard');

-- Nothing but its owner's changes updates a destination's row: what admission
-- writes is in `pacing`.
create table destinations (
    id text primary key,
    tenant_id text not null references tenants (id),
    name text not null default '',
    url text not null,
    -- A JSON array of strings.
    event_types text not null default '[]'
        constraint destinations_check_event_types check (
            json_valid(event_types) and json_type(event_types) = 'array'
        ),
    -- Which events of these types it takes, by their payloads (domain::filter), as JSON.
    -- Null: all.
    filter text
        -- `is null` here and below: to a shell before 3.45 what is null is no valid JSON.
        constraint destinations_check_filter check (
            filter is null or json_valid(filter) and json_type(filter) = 'object'
            and length(cast(filter as blob)) <= 65536
        ),
    limit_per_second integer
        constraint destinations_check_limit_per_second check (limit_per_second between 0 and 1000000000),
    limit_per_minute integer
        constraint destinations_check_limit_per_minute check (limit_per_minute between 0 and 1000000000),
    limit_per_hour integer
        constraint destinations_check_limit_per_hour check (limit_per_hour between 0 and 1000000000),
    limit_per_day integer
        constraint destinations_check_limit_per_day check (limit_per_day between 0 and 1000000000),
    unlimited integer not null default 0
        constraint destinations_check_unlimited check (
            unlimited = 0
            or (unlimited = 1
                and coalesce(limit_per_second, limit_per_minute, limit_per_hour, limit_per_day)
                    is null)
        ),
    burst integer
        constraint destinations_check_burst check (
            burst between 1 and 1000000000 and (shape is not 'leaky_bucket' or burst = 1)
        ),
    shape text
        constraint destinations_check_shape check (
            shape in ('sliding_window', 'token_bucket', 'leaky_bucket')
        ),
    max_in_flight integer
        constraint destinations_check_max_in_flight check (max_in_flight between 1 and 1000000000),
    -- Null: measured (response_times).
    safety_margin real
        constraint destinations_check_safety_margin check (safety_margin between 0 and 1),
    -- The largest that is measured, as a part of the period. Null: a hundredth.
    margin_cap real
        constraint destinations_check_margin_cap check (margin_cap between 0 and 1),
    -- Until when a request counts. Null: until its start.
    count text
        constraint destinations_check_count check (count in ('start', 'response')),
    -- What an operator has granted it beyond its tier's ceiling.
    granted_per_second real
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
    epoch integer not null default 0,
    created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000),
    deleted_at integer,
    -- Of a deleted one: when nothing of it waited or was under way any more, so
    -- that the reaper need not look at it again.
    drained_at integer
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
    retry_policy text
        constraint destinations_check_retry_policy check (
            retry_policy is null or json_valid(retry_policy) and json_type(retry_policy) = 'object'
            and coalesce(json_extract(retry_policy, '$.max_tries'), 1) between 1 and 100
        ),
    -- How old its events may become before they start; null for what its tier says. Holds
    -- for events that are accepted after a change.
    max_age_ms integer
        constraint destinations_check_max_age_ms check (max_age_ms between 1 and 2592000000),
    -- That of its tier, kept here by triggers, so that who accepts an event reads one row.
    -- Null: any age.
    tier_age_ms integer,
    smart_delivery integer not null default 0
        constraint destinations_check_smart_delivery check (smart_delivery in (0, 1)),
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
    pass_traceparent integer not null default 0
        constraint destinations_check_pass_traceparent check (pass_traceparent in (0, 1)),
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
        constraint destinations_check_external_id check (
            length(external_id) between 1 and 200
            and external_id not glob '*[^-A-Za-z0-9._~:@+]*'
        ),
    -- The limit group that its starts count for as well (limit_groups), by name. A trigger
    -- sees to it that its tenant has such a one.
    limit_group text
) strict;

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
    destination_id text primary key,
    version integer not null
) strict, without rowid;

-- What was in force from when on, resolved against the tier; and where requests went.
create table limit_history (
    id integer primary key autoincrement,
    destination_id text not null,
    in_force_from integer not null,
    limit_per_second integer,
    limit_per_minute integer,
    limit_per_hour integer,
    limit_per_day integer,
    unlimited integer not null,
    burst integer,
    shape text,
    max_in_flight integer,
    safety_margin real,
    margin_cap real,
    count text,
    allowed_per_minute integer,
    state text not null,
    url text not null
) strict;

create index limit_history_of_destination on limit_history (destination_id, in_force_from);

-- What admission remembers of a destination. Only admission writes it, but for
-- what a change leaves (below).
create table pacing (
    destination_id text primary key,
    last_permit integer not null default 0,
    meter_missing_micro integer not null default 0,
    meter_as_of integer,
    -- Of which epoch the meter is. Of another, the limits may have changed since:
    -- the starts before the change have to be counted too.
    meter_epoch integer,
    looked_at integer,
    -- The largest integer: not before a change of the limits, which sets it back.
    next_look_at integer,
    -- Postgres reads first attempts from here on, past dead index entries. A
    -- b-tree of SQLite has none, so here it stays 0.
    first_after integer not null default 0,
    held_until integer,
    -- Nothing is admitted before that: a worker had no place for it. Only admission
    -- asks; what has a permit already may start.
    deferred_until integer
) strict, without rowid;

-- Limit groups: what several destinations of a tenant may start together. A group counts
-- its members' starts one by one, so its limits are small. 0 pauses all of them.
create table limit_groups (
    tenant_id text not null references tenants (id),
    name text not null
        constraint limit_groups_check_name check (
            length(name) between 1 and 100 and name not glob '*[^-A-Za-z0-9._~:@+]*'
            and name not in ('.', '..')
        ),
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
    created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000),
    primary key (tenant_id, name),
    constraint limit_groups_check_limits check (
        coalesce(limit_per_second, limit_per_minute, limit_per_hour, limit_per_day) is not null
    )
) strict, without rowid;

-- Who was a member from when to when. What one started meanwhile counts for the group as
-- long as it is in a window, also when it has left.
create table limit_group_members (
    id integer primary key autoincrement,
    tenant_id text not null,
    limit_group text not null,
    destination_id text not null,
    joined_at integer not null,
    left_at integer
) strict;

create index limit_group_members_of_group
    on limit_group_members (tenant_id, limit_group, left_at);
create index limit_group_members_of_destination on limit_group_members (destination_id);

-- What a group allowed from when on; all null once it is deleted.
create table limit_group_history (
    id integer primary key autoincrement,
    tenant_id text not null,
    limit_group text not null,
    in_force_from integer not null,
    limit_per_second integer,
    limit_per_minute integer,
    limit_per_hour integer,
    limit_per_day integer
) strict;

create index limit_group_history_of_group
    on limit_group_history (tenant_id, limit_group, in_force_from);
