-- Who has the dashboard open, and which limits its visitors ask for. The
-- Postgres half says the same.

-- Of what a browser holds we keep the digest alone.
create table sessions (
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
    expires_at integer not null,
    constraint sessions_check_key check ((key_id is null) <> (configured_digest is null))
) strict, without rowid;

create index sessions_by_end on sessions (expires_at);
create index sessions_of_tenant on sessions (tenant_id);

-- Limits above the ceiling of a tenant's tier, for operators to approve.
create table limit_requests (
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

-- A newer request takes the place of the open one.
create unique index limit_requests_open on limit_requests (destination_id) where state = 'open';
create index limit_requests_of_tenant on limit_requests (tenant_id, created_at);
-- A destination that goes is asked for here.
create index limit_requests_of_destination on limit_requests (destination_id);
