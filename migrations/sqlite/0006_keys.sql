-- API keys, and how much of the fleet one tenant may hold.

-- Of a key we keep the digest alone: what was shown once cannot be shown again.
create table api_keys (
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

create index api_keys_of_tenant on api_keys (tenant_id, created_at);

-- Attempts queued and in flight at once, of all destinations of a tenant. Null:
-- the tier's; null there as well: no bound.
alter table tenants add column max_in_flight integer
    constraint tenants_check_max_in_flight check (max_in_flight between 1 and 1000000000);

alter table tiers add column tenant_max_in_flight integer
    constraint tiers_check_tenant_max_in_flight
    check (tenant_max_in_flight between 1 and 1000000000);

-- Destinations that one of its tenants may have, and may have deleted within the last
-- hour. Null: no bound. Who inserts them by SQL is not held to it: what an event
-- costs is bounded by how many it may go to.
alter table tiers add column tenant_max_destinations integer default 10000
    constraint tiers_check_tenant_max_destinations
    check (tenant_max_destinations between 1 and 1000000000);

-- Those that were deleted within the last hour.
create index destinations_deleted_of_tenant on destinations (tenant_id, deleted_at)
    where deleted_at is not null;
