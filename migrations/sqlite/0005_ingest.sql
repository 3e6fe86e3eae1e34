-- Ingest that is safe to repeat.

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
