CREATE TABLE tiers (
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
        constraint tiers_check_max_in_flight check (max_in_flight between 1 and 1000000000)
, tenant_max_in_flight integer
    constraint tiers_check_tenant_max_in_flight
    check (tenant_max_in_flight between 1 and 1000000000), tenant_max_destinations integer default 10000
    constraint tiers_check_tenant_max_destinations
    check (tenant_max_destinations between 1 and 1000000000), tenant_ingest_per_second integer
    constraint tiers_check_tenant_ingest_per_second
    check (tenant_ingest_per_second between 1 and 1000000000)) strict;
CREATE TABLE tenants (
    id text primary key,
    name text not null,
    tier text not null references tiers (name),
    created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000)
, max_in_flight integer
    constraint tenants_check_max_in_flight check (max_in_flight between 1 and 1000000000), ingest_per_second integer
    constraint tenants_check_ingest_per_second
    check (ingest_per_second between 1 and 1000000000)) strict;
CREATE INDEX tenants_of_tier on tenants (tier);
CREATE TABLE destinations (
    id text primary key,
    tenant_id text not null references tenants (id),
    name text not null default '',
    url text not null,
    -- A JSON array of strings.
    event_types text not null default '[]'
        constraint destinations_check_event_types check (
            json_valid(event_types) and json_type(event_types) = 'array'
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
    safety_margin real not null default 0
        constraint destinations_check_safety_margin check (safety_margin between 0 and 1),
    state text not null default 'active'
        constraint destinations_check_state check (state in ('active', 'paused', 'disabled')),
    epoch integer not null default 0,
    created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000),
    deleted_at integer,
    -- Of a deleted one: when nothing of it waited or was under way any more, so
    -- that the reaper need not look at it again.
    drained_at integer
        constraint destinations_check_drained_at
        check (drained_at is null or deleted_at is not null)
, breaker_failures integer
    constraint destinations_check_breaker_failures
    check (breaker_failures between 0 and 1000000000), breaker_failing_for_seconds integer
    constraint destinations_check_breaker_failing_for_seconds
    check (breaker_failing_for_seconds between 0 and 1000000000), breaker_disable_after_seconds integer
    constraint destinations_check_breaker_disable_after_seconds
    check (breaker_disable_after_seconds between 0 and 1000000000), retry_policy text
    constraint destinations_check_retry_policy check (
        json_valid(retry_policy) and json_type(retry_policy) = 'object'
        and coalesce(json_extract(retry_policy, '$.max_tries'), 1) between 1 and 100
    ), max_age_ms integer
    constraint destinations_check_max_age_ms check (max_age_ms between 1 and 2592000000), smart_delivery integer not null default 0
    constraint destinations_check_smart_delivery check (smart_delivery in (0, 1)), alert_backlog integer
    constraint destinations_check_alert_backlog
    check (alert_backlog between 0 and 100000), alert_under_delivery_seconds integer
    constraint destinations_check_alert_under_delivery_seconds
    check (alert_under_delivery_seconds between 0 and 86400), alert_failing_percent integer
    constraint destinations_check_alert_failing_percent
    check (alert_failing_percent between 0 and 100), batch_max_events integer
    constraint destinations_check_batch_max_events check (batch_max_events between 1 and 500), batch_max_bytes integer
    constraint destinations_check_batch_max_bytes check (batch_max_bytes between 1 and 1000000), batch_max_wait_ms integer
    constraint destinations_check_batch_max_wait_ms check (batch_max_wait_ms between 0 and 60000), pass_traceparent integer not null default 0
    constraint destinations_check_pass_traceparent check (pass_traceparent in (0, 1))) strict;
CREATE INDEX destinations_of_tenant on destinations (tenant_id, id) where deleted_at is null;
CREATE INDEX destinations_deleted on destinations (deleted_at, id) where deleted_at is not null;
CREATE INDEX destinations_to_drain on destinations (deleted_at, id)
    where deleted_at is not null and drained_at is null;
CREATE TABLE destination_marks (
    destination_id text primary key,
    version integer not null
) strict, without rowid;
CREATE TABLE limit_history (
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
    safety_margin real not null,
    state text not null
) strict;
CREATE TABLE sqlite_sequence(name,seq);
CREATE INDEX limit_history_of_destination on limit_history (destination_id, in_force_from);
CREATE TABLE pacing (
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
    held_until integer
, deferred_until integer) strict, without rowid;
CREATE TABLE events (
    id text primary key,
    tenant_id text not null,
    event_type text,
    content_type text not null,
    payload blob not null,
    created_at integer not null
, trace text) strict;
CREATE TABLE attempts (
    id integer primary key autoincrement,
    event_id text not null,
    destination_id text not null references destinations (id),
    tenant_id text not null,
    try_number integer not null default 1,
    state text not null default 'waiting'
        constraint attempts_check_state check (
            state in (
                'waiting', 'admitted', 'started', 'succeeded', 'failed', 'unknown', 'not_sent',
                'cancelled', 'expired'
            )
        ),
    -- Null: a first attempt that was never admitted. Else when a retry is due,
    -- or the creation of one whose permit was returned.
    due_at integer,
    permit integer,
    epoch integer,
    not_before integer,
    deadline integer,
    -- A coarse limit counts its start, so its outcome folds it.
    coarse integer not null default 0,
    -- Its start is in start_buckets.
    folded integer not null default 0,
    -- Its outcome makes room that somebody waits for.
    crowded integer not null default 0,
    worker_id text,
    created_at integer not null,
    admitted_at integer,
    started_at integer,
    finished_at integer,
    delivery_latency integer generated always as (finished_at - created_at) stored,
    status integer,
    error text,
    response_body blob,
    dead_letter integer not null default 0, tries_before integer not null default 0, expires_at integer, replay_id text, replayed_at integer, payload_bytes integer not null default 0, carried_by integer, batch_size integer, batch_limit integer,
    constraint attempts_check_admitted check (
        state <> 'admitted'
        or (permit is not null and epoch is not null
            and not_before is not null and deadline is not null)
    ),
    constraint attempts_check_started_at check (
        (started_at is null) = (state in ('waiting', 'admitted', 'cancelled', 'expired'))
    )
) strict;
CREATE INDEX attempts_first on attempts (destination_id, id)
    where state = 'waiting' and due_at is null;
CREATE INDEX attempts_due on attempts (destination_id, due_at, id)
    where state = 'waiting' and due_at is not null;
CREATE INDEX attempts_admitted on attempts (destination_id, not_before, deadline)
    where state = 'admitted';
CREATE INDEX attempts_deadline on attempts (deadline) where state = 'admitted';
CREATE INDEX attempts_started on attempts (started_at, worker_id) where state = 'started';
CREATE INDEX attempts_of_event on attempts (event_id);
CREATE INDEX attempts_of_destination on attempts (destination_id, id);
CREATE TABLE start_buckets (
    destination_id text not null,
    period text not null
        constraint start_buckets_check_period
        check (period in ('second', 'minute', 'hour', 'day')),
    ends_at integer not null,
    shard integer not null,
    starts integer not null,
    primary key (destination_id, period, ends_at, shard)
) strict, without rowid;
CREATE INDEX start_buckets_by_age on start_buckets (period, ends_at);
CREATE TABLE workers (
    id text primary key,
    places integer not null,
    seen_at integer not null,
    retired integer not null default 0
) strict, without rowid;
CREATE VIEW store_clock as
select cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000 as now
/* store_clock(now) */;
CREATE VIEW effective_limits as
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
    iif(d.deleted_at is null, d.state, 'disabled') as state
from (
    select *,
        unlimited = 0
        and coalesce(limit_per_second, limit_per_minute, limit_per_hour, limit_per_day) is null
        as inherits
    from destinations
) d
join tenants n on n.id = d.tenant_id
join tiers t on t.name = n.tier
/* effective_limits(destination_id,tenant_id,tier,deleted_at,limit_per_second,limit_per_minute,limit_per_hour,limit_per_day,unlimited,burst,shape,max_in_flight,safety_margin,state) */;
CREATE VIEW limit_changes as
select
    e.destination_id,
    e.tenant_id,
    e.tier,
    e.deleted_at,
    (
        h.state = 'active' and e.state = 'active'
        and e.safety_margin <= h.safety_margin
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
    or e.state is not h.state
/* limit_changes(destination_id,tenant_id,tier,deleted_at,revokes) */;
CREATE TRIGGER limit_changes_insert instead of insert on limit_changes
begin
    update destinations set epoch = epoch + 1
    where id = new.destination_id and new.revokes;

    update attempts
    set state = iif(new.deleted_at is null, 'waiting', 'cancelled'),
        due_at = coalesce(due_at, created_at),
        permit = null, epoch = null, not_before = null, deadline = null
    where new.revokes and id in (
        -- An update in a trigger cannot name its index; the wrong one would
        -- read the destination's whole ledger under the lock.
        select id from attempts indexed by attempts_admitted
        where destination_id = new.destination_id and state = 'admitted'
    );

    insert into pacing (destination_id, held_until)
    select new.destination_id, c.now + 1000 from store_clock c where new.revokes
    on conflict (destination_id) do update
    set held_until = max(coalesce(held_until, 0), excluded.held_until);

    -- Whatever the last run waited for: the sweep finds it even if the wake that
    -- the mark stands for is lost.
    update pacing set next_look_at = null where destination_id = new.destination_id;

    insert into limit_history (
        destination_id, in_force_from,
        limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited, burst, shape,
        max_in_flight, safety_margin, state
    )
    select destination_id, c.now + iif(new.revokes, 1000, 0),
        limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited, burst, shape,
        max_in_flight, safety_margin, state
    from effective_limits, store_clock c
    where destination_id = new.destination_id;

    -- History's ids never repeat, so neither do versions.
    insert into destination_marks (destination_id, version)
    select new.destination_id, max(id) from limit_history where true
    on conflict (destination_id) do update set version = excluded.version;
end;
CREATE TRIGGER destinations_after_update
after update of
    tenant_id, url, limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited,
    burst, shape, max_in_flight, safety_margin, state, deleted_at
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
CREATE TRIGGER destinations_after_insert after insert on destinations
begin
    insert into limit_history (
        destination_id, in_force_from,
        limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited, burst, shape,
        max_in_flight, safety_margin, state
    )
    select destination_id, c.now,
        limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited, burst, shape,
        max_in_flight, safety_margin, state
    from effective_limits, store_clock c
    where destination_id = new.id;
end;
CREATE TRIGGER tiers_after_update after update on tiers
begin
    insert into limit_changes (destination_id, deleted_at, revokes)
    select destination_id, deleted_at, revokes
    from limit_changes
    where tier = new.name and deleted_at is null;
end;
CREATE TRIGGER tenants_after_update after update of tier on tenants
when old.tier is not new.tier
begin
    insert into limit_changes (destination_id, deleted_at, revokes)
    select destination_id, deleted_at, revokes
    from limit_changes
    where tenant_id = new.id and deleted_at is null;
end;
CREATE TABLE destination_secrets (
    id text primary key,
    tenant_id text not null,
    destination_id text not null references destinations (id),
    kind text not null
        constraint destination_secrets_check_kind
        check (kind in ('hmac', 'ed25519', 'headers')),
    key_id text not null,
    sealed blob not null,
    -- No secret: a public key, or the names of the headers.
    shown text,
    created_at integer not null,
    expires_at integer
) strict;
CREATE INDEX destination_secrets_of_destination on destination_secrets (destination_id);
CREATE UNIQUE INDEX destination_secrets_headers on destination_secrets (destination_id)
    where kind = 'headers';
CREATE INDEX destination_secrets_by_key on destination_secrets (key_id, id);
CREATE INDEX destination_secrets_expiring on destination_secrets (expires_at)
    where expires_at is not null;
CREATE TRIGGER destinations_forget_secrets after update of deleted_at on destinations
when old.deleted_at is null and new.deleted_at is not null
begin
    delete from destination_secrets where destination_id = new.id;
end;
CREATE TABLE health (
    destination_id text primary key,
    -- In a row, while the breaker is closed: each of an attempt that started when
    -- the one before had ended.
    failures integer not null default 0,
    -- When the first of them ended, and the last.
    failing_since integer,
    last_failed_at integer,
    -- Holds in a row that a 429 began.
    refusals integer not null default 0,
    held_since integer,
    -- Nothing starts before.
    held_until integer,
    held_for text
        constraint health_check_held_for check (held_for in ('asked', 'refused', 'breaker')),
    -- The breaker is open; once the hold is over, half open.
    opened_at integer,
    -- That failed since.
    probes integer not null default 0,
    disabled_for text
        constraint health_check_disabled_for check (disabled_for in ('gone', 'failing')),
    constraint health_check_failing_since check (
        (failing_since is null) = (last_failed_at is null)
    ),
    constraint health_check_held_until check (
        (held_until is null) = (held_since is null) and (held_until is null) = (held_for is null)
    )
) strict, without rowid;
CREATE TABLE operational_events (
    id integer primary key autoincrement,
    event_type text not null,
    destination_id text not null,
    tenant_id text not null,
    -- A JSON object.
    details text not null,
    created_at integer not null
, relayed_at integer) strict;
CREATE TRIGGER destinations_forget_health
after update of url, state, deleted_at on destinations
when old.url is not new.url
    or (old.state <> 'active' and new.state = 'active')
    or (old.deleted_at is null and new.deleted_at is not null)
begin
    delete from health where destination_id = new.id;
end;
CREATE INDEX attempts_due_by_id on attempts (destination_id, id)
    where state = 'waiting' and due_at is not null;
CREATE INDEX attempts_expiring on attempts (expires_at)
    where state = 'waiting' and expires_at is not null;
CREATE INDEX attempts_dead
    on attempts (destination_id, coalesce(finished_at, started_at), id)
    where dead_letter = 1 and replayed_at is null;
CREATE INDEX attempts_dead_of_tenant
    on attempts (tenant_id, coalesce(finished_at, started_at), id)
    where dead_letter = 1 and replayed_at is null;
CREATE INDEX attempts_of_replay on attempts (replay_id, state) where replay_id is not null;
CREATE TABLE replays (
    id text primary key,
    tenant_id text not null,
    destination_id text not null references destinations (id),
    -- Which: null is any.
    attempt_id integer,
    event_type text,
    status integer,
    died_from integer,
    -- The creation of the replay at the latest.
    died_before integer not null,
    -- Which part of the destination's limit it may use.
    share real not null
        constraint replays_check_share check (share > 0 and share <= 1),
    state text not null default 'running'
        constraint replays_check_state check (state in ('running', 'completed', 'cancelled')),
    total integer not null,
    done integer not null default 0,
    -- Up to where the dead letters were looked at.
    after_at integer,
    after_id integer,
    -- When the last of those replayed would have started, at the share.
    paced_at integer,
    created_at integer not null,
    finished_at integer
) strict, without rowid;
CREATE INDEX replays_running on replays (id) where state = 'running';
CREATE INDEX replays_of_tenant on replays (tenant_id, id);
CREATE INDEX replays_of_destination on replays (destination_id);
CREATE TABLE idempotency_keys (
    tenant_id text not null,
    key text not null,
    -- SHA-256 of what the request asked for.
    digest blob not null,
    event_id text not null,
    expires_at integer not null,
    primary key (tenant_id, key)
) strict, without rowid;
CREATE INDEX idempotency_keys_expired on idempotency_keys (expires_at);
CREATE TABLE api_keys (
    id text primary key
        constraint api_keys_check_id check (length(id) = 16 and id not glob '*[^0-9a-f]*'),
    tenant_id text not null references tenants (id),
    name text not null default '',
    -- SHA-256 of the whole key.
    digest blob not null
        constraint api_keys_check_digest check (length(digest) = 32),
    may_ingest integer not null,
    may_manage integer not null,
    may_read integer not null,
    -- Whoever administers tenants is none of them: only the default tenant,
    -- which is the installation's own, can have such keys.
    may_admin integer not null
        constraint api_keys_check_scopes check (
            (may_ingest or may_manage or may_read or may_admin)
            and (not may_admin or tenant_id = '00000000-0000-0000-0000-000000000001')
        ),
    created_at integer not null,
    expires_at integer,
    last_used_at integer,
    revoked_at integer
) strict;
CREATE INDEX api_keys_of_tenant on api_keys (tenant_id, created_at);
CREATE INDEX destinations_deleted_of_tenant on destinations (tenant_id, deleted_at)
    where deleted_at is not null;
CREATE TABLE smart_limits (
    destination_id text primary key,
    -- Starts per second; null is as configured.
    per_second real
        constraint smart_limits_check_per_second check (per_second > 0),
    -- Null is as configured.
    max_in_flight integer
        constraint smart_limits_check_max_in_flight check (max_in_flight >= 1),
    reason text not null default 'configured'
        constraint smart_limits_check_reason
        check (reason in ('configured', 'refused', 'slow', 'raising')),
    -- What started before says nothing.
    begun_at integer not null,
    -- What the law remembers, as JSON; null for nothing.
    memory text
) strict, without rowid;
CREATE TABLE smart_history (
    id integer primary key autoincrement,
    destination_id text not null,
    in_force_from integer not null,
    per_second real,
    max_in_flight integer,
    reason text not null
) strict;
CREATE INDEX smart_history_of_destination on smart_history (destination_id, in_force_from, id);
CREATE TRIGGER destinations_set_smart
after update of smart_delivery, url, deleted_at on destinations
when old.smart_delivery <> new.smart_delivery
    or (new.smart_delivery and old.url is not new.url)
    or (new.smart_delivery and old.deleted_at is null and new.deleted_at is not null)
begin
    delete from smart_limits where destination_id = new.id;
    insert into smart_limits (destination_id, begun_at)
    select new.id, c.now from store_clock c
    where new.smart_delivery and new.deleted_at is null;
    insert into smart_history (destination_id, in_force_from, reason)
    select new.id, c.now, 'configured' from store_clock c;
    update pacing set next_look_at = null where destination_id = new.id;
end;
CREATE TRIGGER destinations_insert_smart after insert on destinations
when new.smart_delivery
begin
    insert into smart_limits (destination_id, begun_at)
    select new.id, c.now from store_clock c;
    insert into smart_history (destination_id, in_force_from, reason)
    select new.id, c.now, 'configured' from store_clock c;
end;
CREATE INDEX operational_events_to_relay on operational_events (id) where relayed_at is null;
CREATE INDEX operational_events_of_tenant on operational_events (tenant_id, id);
CREATE TABLE operational_destinations (
    -- The order of registration: what one is told of another goes by it.
    position integer primary key autoincrement,
    destination_id text not null unique,
    tenant_id text not null,
    -- Of whose destinations: the tenant's, or everybody's.
    scope text not null
        constraint operational_destinations_check_scope
        check (scope in ('tenant', 'installation')),
    -- Of which types, a JSON array; none is all.
    event_types text not null,
    created_at integer not null
) strict;
CREATE INDEX operational_destinations_of_tenant
    on operational_destinations (tenant_id, position);
CREATE INDEX operational_destinations_of_all
    on operational_destinations (position) where scope = 'installation';
CREATE TRIGGER destinations_forget_operational after update of deleted_at on destinations
when old.deleted_at is null and new.deleted_at is not null
begin
    delete from operational_destinations where destination_id = new.id;
end;
CREATE TABLE watches (
    destination_id text primary key,
    tenant_id text not null,
    -- Its backlog is above the threshold, and operators know.
    backlog_high_since integer,
    -- It gets less than its limit allows.
    short_since integer,
    short_seen_at integer,
    short_for text,
    short_told integer not null default 0,
    -- Dead letters that operators do not know of yet.
    dead_letters integer not null default 0,
    dead_letters_told_at integer
) strict, without rowid;
CREATE TABLE watch_turn (
    id integer primary key,
    -- Up to where this round has looked.
    after text,
    -- When the next step is due.
    due_at integer not null
) strict;
CREATE TABLE dead_letter_tallies (
    id integer primary key autoincrement,
    destination_id text not null,
    tenant_id text not null
) strict;
CREATE TRIGGER attempts_tally_dead_letter
after update of dead_letter on attempts
when new.dead_letter and not old.dead_letter
begin
    insert into dead_letter_tallies (destination_id, tenant_id)
    values (new.destination_id, new.tenant_id);
end;
CREATE TABLE backlog_standings (
    scope text not null
        constraint backlog_standings_check_scope
        check (scope in ('destination', 'tenant', 'all')),
    -- The nil UUID for all.
    id text not null,
    -- Whose a destination is; null for the others.
    tenant_id text,
    pending integer not null,
    -- Since when events are refused, and how many were pending then; null: they
    -- are taken.
    refused_at integer,
    refused_pending integer,
    -- What refused clients are told.
    retry_after_ms integer not null,
    -- Of all: when the count began that all of them are of, and how long it took.
    counted_at integer,
    took_ms integer,
    primary key (scope, id)
) strict, without rowid;
CREATE INDEX attempts_starts on attempts (destination_id, folded, started_at desc, id desc)
    where started_at is not null and carried_by is null;
CREATE INDEX attempts_in_flight on attempts (destination_id)
    where state = 'started' and carried_by is null;
CREATE VIEW starts_per_second as
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
group by s.destination_id, s.second
/* starts_per_second(destination_id,second,starts,average_delivery_latency,limit_per_second,"over") */;
CREATE TABLE retention_walks (
    name text primary key
        constraint retention_walks_check_name check (
            name in (
                'attempts', 'days', 'dead_letters', 'destinations', 'events', 'limit_history',
                'records'
            )
        ),
    -- Up to where this round has come: an id of attempts or of limit history, an
    -- event's rowid, the death and the id of a dead letter, or when a destination was
    -- deleted and its rowid. Postgres walks along events by their creation and ids,
    -- and has days.
    after_id integer not null default 0,
    after_at integer not null default 0,
    after_event text not null default '',
    -- Where a round begins, in Postgres. Here it costs nothing to begin at the
    -- first row: what is gone leaves nothing behind.
    left_id integer,
    left_at integer,
    began_at integer not null default 0,
    -- When the next step is due.
    due_at integer not null default 0
) strict, without rowid;
CREATE TABLE retention_turn (
    id integer primary key default 1
        constraint retention_turn_check_id check (id = 1),
    due_at integer not null default 0
) strict;
CREATE INDEX attempts_dead_by_age on attempts (coalesce(finished_at, started_at), id)
    where dead_letter = 1 and replayed_at is null;
CREATE INDEX replays_finished on replays (finished_at) where finished_at is not null;
CREATE TABLE destination_managers (
    destination_id text primary key references destinations (id),
    tenant_id text not null,
    -- Such as `paceline/shop`: its namespace and its name.
    resource text not null,
    -- Which of all that ever had this name; null: none any more, and the next
    -- one may have the destination.
    uid text
) strict;
CREATE UNIQUE INDEX destination_managers_of_resource on destination_managers (tenant_id, resource);
CREATE INDEX destinations_by_name on destinations (tenant_id, name) where deleted_at is null;
CREATE TRIGGER destinations_forget_manager after update of deleted_at on destinations
when old.deleted_at is null and new.deleted_at is not null
begin
    delete from destination_managers where destination_id = new.id;
end;
CREATE TABLE sessions (
    digest blob primary key
        constraint sessions_check_digest check (length(digest) = 32),
    -- Signed in with a key; a link, which opens sessions; opened by a link; or a link
    -- that signs in once.
    kind text not null
        constraint sessions_check_kind check (kind in ('key', 'link', 'opened', 'once')),
    -- Whose pages it shows.
    tenant_id text not null references tenants (id),
    -- The key behind it: it ends with that. Null for the one that is configured.
    key_id text,
    -- SHA-256 of the configured key: another one ends the sessions of this one.
    configured_digest blob,
    may_ingest integer not null,
    may_manage integer not null,
    may_read integer not null,
    may_admin integer not null,
    created_at integer not null,
    expires_at integer not null, name text not null default '', link_digest blob,
    constraint sessions_check_key check ((key_id is null) <> (configured_digest is null))
) strict, without rowid;
CREATE INDEX sessions_by_end on sessions (expires_at);
CREATE INDEX sessions_of_tenant on sessions (tenant_id);
CREATE TABLE limit_requests (
    id text primary key,
    tenant_id text not null references tenants (id),
    destination_id text not null references destinations (id),
    -- All limits, as they shall be, as JSON.
    settings text not null,
    note text not null,
    state text not null default 'open'
        constraint limit_requests_check_state check (state in ('open', 'approved', 'declined')),
    created_at integer not null,
    decided_at integer,
    constraint limit_requests_check_decided check ((state = 'open') = (decided_at is null))
) strict;
CREATE UNIQUE INDEX limit_requests_open on limit_requests (destination_id) where state = 'open';
CREATE INDEX limit_requests_of_tenant on limit_requests (tenant_id, created_at);
CREATE INDEX limit_requests_of_destination on limit_requests (destination_id);
CREATE TRIGGER destinations_after_traces after update of pass_traceparent on destinations
when old.pass_traceparent <> new.pass_traceparent
begin
    insert into limit_changes (destination_id, deleted_at, revokes)
    values (new.id, new.deleted_at, 1);
end;
CREATE INDEX events_of_tenant on events (tenant_id, id);
CREATE TABLE tallies (
    destination_id text not null,
    -- Five minutes, kept for a day; or an hour, kept for a week.
    slot text not null
        constraint tallies_check_slot check (slot in ('minutes', 'hour')),
    -- Exclusive.
    ends_at integer not null,
    succeeded integer not null,
    -- With anything but a 429, which is counted by itself.
    failed integer not null,
    refused integer not null,
    -- Their worker ended, or never sent them.
    unknown integer not null,
    primary key (destination_id, slot, ends_at)
) strict, without rowid;
CREATE INDEX tallies_by_age on tallies (slot, ends_at);
CREATE TABLE tally_marks (
    destination_id text primary key,
    -- Every start before that is counted.
    until integer not null,
    last_failed_at integer,
    last_failed_status integer,
    -- Each look has found it failing since, and its owner knows.
    failing_since integer,
    failing_told integer not null default 0
) strict, without rowid;
CREATE TABLE tally_turn (
    id integer primary key,
    -- Up to where this round has counted.
    after text,
    -- A destination of this round has more to count than a step counts.
    is_cut integer not null default 0,
    -- When the next step is due.
    due_at integer not null
) strict;
