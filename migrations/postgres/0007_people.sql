-- What people and programs bring: secrets, API keys, managers, sessions, what they ask for,
-- and what they say of event types.

-- What signs a destination's requests, the headers that it adds to them, the client
-- certificate that its connections show and the OAuth2 client that its tokens are asked
-- for with: sealed, under a key that this database does not have.

create table destination_secrets (
    id uuid primary key,
    tenant_id uuid not null,
    destination_id uuid not null references destinations (id),
    kind text not null
        constraint destination_secrets_check_kind
        check (kind in ('hmac', 'ed25519', 'headers', 'client_certificate', 'oauth2')),
    key_id text not null,
    sealed bytea not null,
    -- No secret: a public key, the names of the headers, or as JSON what people may see of
    -- a certificate or a client.
    shown text,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz,
    -- Why a worker got no token by this client, and when it last said so.
    trouble text,
    troubled_at timestamptz
);

create index destination_secrets_of_destination on destination_secrets (destination_id);
-- A destination has one of each that does not sign.
create unique index destination_secrets_single on destination_secrets (destination_id, kind)
    where kind in ('headers', 'client_certificate', 'oauth2');
create index destination_secrets_by_key on destination_secrets (key_id, id);
create index destination_secrets_expiring on destination_secrets (expires_at)
    where expires_at is not null;

-- A destination's secrets go with it, whoever deletes it: nothing of it starts
-- any more.
create function destinations_forget_secrets() returns trigger
    language plpgsql
as $$
begin
    delete from destination_secrets where destination_id = new.id;
    return null;
end;
$$;

create trigger destinations_forget_secrets after update of deleted_at on destinations
    for each row when (old.deleted_at is null and new.deleted_at is not null)
    execute function destinations_forget_secrets();

-- Of a key we keep the digest alone: what was shown once cannot be shown again.
create table api_keys (
    id text primary key
        constraint api_keys_check_id check (id ~ '^[0-9a-f]{16}$'),
    tenant_id uuid not null references tenants (id),
    name text not null default '',
    -- SHA-256 of the whole key.
    digest bytea not null
        constraint api_keys_check_digest check (octet_length(digest) = 32),
    may_ingest boolean not null,
    may_manage boolean not null,
    may_read boolean not null,
    -- Whoever administers tenants, or acts for them, is none of them: only the
    -- default tenant, which is the installation's own, can have such keys.
    may_admin boolean not null,
    may_platform boolean not null,
    may_read_payloads boolean not null
        constraint api_keys_check_scopes check (
            (
                may_ingest or may_manage or may_read or may_admin or may_platform
                or may_read_payloads
            )
            and (
                not (may_admin or may_platform)
                or tenant_id = '00000000-0000-0000-0000-000000000001'
            )
        ),
    created_at timestamptz not null,
    expires_at timestamptz,
    -- Not in any index, so that noting it stays an update in place.
    last_used_at timestamptz,
    revoked_at timestamptz
) with (fillfactor = 80);

create index api_keys_of_tenant on api_keys (tenant_id, created_at);

-- Who manages a destination from outside: a resource of Kubernetes. What is
-- managed is changed there, and the API refuses to.
--
-- A table of its own: nothing on the way of an event reads or locks it.

create table destination_managers (
    destination_id uuid primary key references destinations (id),
    tenant_id uuid not null,
    -- Such as `paceline/shop`: its namespace and its name.
    resource text not null,
    -- Which of all that ever had this name; null: none any more, and the next
    -- one may have the destination.
    uid text
);

create unique index destination_managers_of_resource on destination_managers (tenant_id, resource);

-- Goes with the destination, whoever deletes it.
create function destinations_forget_manager() returns trigger
    language plpgsql
as $$
begin
    delete from destination_managers where destination_id = new.id;
    return null;
end;
$$;

create trigger destinations_forget_manager after update of deleted_at on destinations
    for each row when (old.deleted_at is null and new.deleted_at is not null)
    execute function destinations_forget_manager();

-- ---------------------------------------------------------------------------
-- The dashboard.

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
    may_platform boolean not null,
    may_read_payloads boolean not null,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    -- For people; of links alone.
    name text not null default '',
    -- The digest of the link that opened the session, which ends with it. Null for what
    -- a key opened.
    link_digest bytea,
    constraint sessions_check_key check ((key_id is null) <> (configured_digest is null))
);

create index sessions_by_end on sessions (expires_at);
create index sessions_of_tenant on sessions (tenant_id);

-- What is above the ceiling of a tenant's tier, for operators to approve.
create table limit_requests (
    id uuid primary key,
    tenant_id uuid not null references tenants (id),
    -- Null: how many destinations the tenant may have is asked for.
    destination_id uuid references destinations (id),
    -- All limits, as they shall be, as JSON; null: they stay.
    settings text,
    -- What they were when it was made.
    limits_before text,
    -- How large its batches may be; null: no larger.
    batch_events integer
        constraint limit_requests_check_batch_events check (batch_events between 1 and 500),
    batch_bytes integer
        constraint limit_requests_check_batch_bytes check (batch_bytes between 1 and 1000000),
    -- How many destinations there may be.
    destinations integer
        constraint limit_requests_check_destinations
        check (destinations between 1 and 1000000000),
    note text not null,
    state text not null default 'open'
        constraint limit_requests_check_state check (state in ('open', 'approved', 'declined')),
    created_at timestamptz not null,
    decided_at timestamptz,
    -- Why it was decided so.
    reason text not null default '',
    constraint limit_requests_check_decided check ((state = 'open') = (decided_at is null)),
    constraint limit_requests_check_wanted check (
        (destination_id is null) = (destinations is not null)
        and (settings is null) = (limits_before is null)
        and (destination_id is null)
            = (settings is null and batch_events is null and batch_bytes is null)
    )
);

-- A newer request takes the place of the open one.
create unique index limit_requests_open on limit_requests (destination_id) where state = 'open';
create unique index limit_requests_open_of_tenant on limit_requests (tenant_id)
    where state = 'open' and destination_id is null;
-- As they are listed: a tenant's, and all. In other words, so that the few of one tenant are
-- not looked for along all.
create index limit_requests_of_tenant
    on limit_requests (tenant_id, ((state = 'open')::integer) desc, created_at desc, id desc);
create index limit_requests_in_order
    on limit_requests ((state = 'open') desc, created_at desc, id desc);
-- A destination that goes is asked for here.
create index limit_requests_of_destination on limit_requests (destination_id);

-- The catalogue of event types: what the platform says of them. The installation's, not a
-- tenant's, and read by all. Nothing on the way of an event reads it.
create table event_types (
    name text collate "C" primary key
        constraint event_types_check_name check (octet_length(name) between 1 and 128),
    description text not null default ''
        constraint event_types_check_description check (octet_length(description) <= 2000),
    -- A JSON schema. No payload is compared with it.
    schema json
        constraint event_types_check_schema check (
            json_typeof(schema) = 'object' and octet_length(schema::text) <= 65536
        ),
    -- A payload.
    example json
        constraint event_types_check_example check (octet_length(example::text) <= 32768),
    -- JSON pointers to what is not shown of its payloads (domain::redaction). Where one
    -- makes no sense, nothing of them is.
    redact text[] not null default '{}'
        constraint event_types_check_redact check (
            cardinality(redact) <= 50 and array_position(redact, null) is null
        ),
    -- It is offered to nobody any more; its rules hold.
    archived boolean not null default false
);
