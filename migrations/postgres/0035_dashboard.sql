-- Who has the dashboard open, and which limits its visitors ask for.

-- Of what a browser holds we keep the digest alone.
create table sessions (
    digest bytea primary key
        constraint sessions_check_digest check (octet_length(digest) = 32),
    -- Signed in with a key; a link, which opens sessions; opened by a link; or a link
    -- that signs in once.
    kind text not null
        constraint sessions_check_kind check (kind in ('key', 'link', 'opened', 'once')),
    -- Whose pages it shows.
    tenant_id uuid not null references tenants (id),
    -- The key behind it: it ends with that. Null for the one that is configured.
    key_id text,
    -- SHA-256 of the configured key: another one ends the sessions of this one.
    configured_digest bytea,
    may_ingest boolean not null,
    may_manage boolean not null,
    may_read boolean not null,
    may_admin boolean not null,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    constraint sessions_check_key check ((key_id is null) <> (configured_digest is null))
);

create index sessions_by_end on sessions (expires_at);
create index sessions_of_tenant on sessions (tenant_id);

-- Limits above the ceiling of a tenant's tier, for operators to approve.
create table limit_requests (
    id uuid primary key,
    tenant_id uuid not null references tenants (id),
    destination_id uuid not null references destinations (id),
    -- All limits, as they shall be, as JSON.
    settings text not null,
    note text not null,
    state text not null default 'open'
        constraint limit_requests_check_state check (state in ('open', 'approved', 'declined')),
    created_at timestamptz not null,
    decided_at timestamptz,
    constraint limit_requests_check_decided check ((state = 'open') = (decided_at is null))
);

-- A newer request takes the place of the open one.
create unique index limit_requests_open on limit_requests (destination_id) where state = 'open';
create index limit_requests_of_tenant on limit_requests (tenant_id, created_at);
-- A destination that goes is asked for here.
create index limit_requests_of_destination on limit_requests (destination_id);
