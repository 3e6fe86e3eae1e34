-- Ingest that knows when to say no.

-- Where backlogs stand, by the last count: those that refuse events, or are
-- long. Nothing on an event's way writes here: what is counted are the indexes
-- that hold what is pending.
create table backlog_standings (
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

insert into backlog_standings (scope, id, pending, retry_after_ms, counted_at, took_ms)
values ('all', '00000000-0000-0000-0000-000000000000', 0, 0, 0, 0);

-- Events that a tenant may hand in a second, at each API process. Null: the
-- tier's; null there as well: what the process is configured with.
alter table tenants add column ingest_per_second integer
    constraint tenants_check_ingest_per_second
    check (ingest_per_second between 1 and 1000000000);

alter table tiers add column tenant_ingest_per_second integer
    constraint tiers_check_tenant_ingest_per_second
    check (tenant_ingest_per_second between 1 and 1000000000);
