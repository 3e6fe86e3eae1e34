-- Ingest that is safe to repeat.

-- What a tenant's `Idempotency-Key` stands for, until it expires. Written in
-- the transaction that accepts the event: two requests with one key wait for
-- each other at the primary key.
create table idempotency_keys (
    tenant_id uuid not null,
    key text not null,
    -- SHA-256 of what the request asked for.
    digest bytea not null,
    event_id uuid not null,
    expires_at timestamptz not null,
    primary key (tenant_id, key)
);

create index idempotency_keys_expired on idempotency_keys (expires_at);
