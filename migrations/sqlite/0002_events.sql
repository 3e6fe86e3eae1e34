-- Events: what was accepted.

create table events (
    id text primary key,
    tenant_id text not null,
    event_type text,
    content_type text not null,
    payload blob not null,
    created_at integer not null,
    -- A traceparent, and after a space what came as tracestate. Null where nobody
    -- traces. Whoever reads the column takes what is malformed for none.
    trace text,
    -- For the one destination that it named, and not for those that subscribe.
    directed integer not null default 0,
    -- Its first attempts go before those of other events, and so does what is sent again.
    urgent integer not null default 0
) strict;

-- For people who search: a tenant's events, the newest first, and no other's.
create index events_of_tenant on events (tenant_id, id);

-- What a tenant's `Idempotency-Key` stands for, until it expires. Written in
-- the transaction that accepts the event.
create table idempotency_keys (
    tenant_id text not null,
    key text not null,
    -- SHA-256 of what the request asked for.
    digest blob not null,
    event_id text not null,
    expires_at integer not null,
    primary key (tenant_id, key)
) strict, without rowid;

create index idempotency_keys_expired on idempotency_keys (expires_at);
