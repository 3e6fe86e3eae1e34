-- Ingest that knows when to say no. The SQLite half says the same.

-- Where backlogs stand, by the last count: those that refuse events, or are
-- long. Nothing on an event's way writes here: what is counted are the indexes
-- that hold what is pending.
create table backlog_standings (
    scope text not null
        constraint backlog_standings_check_scope
        check (scope in ('destination', 'tenant', 'all')),
    -- The nil UUID for all.
    id uuid not null,
    pending bigint not null,
    counted_at timestamptz not null,
    refusing boolean not null,
    -- Null is not known.
    drained_per_second double precision,
    -- What refused clients are told.
    retry_after_ms bigint not null,
    primary key (scope, id)
) with (fillfactor = 50);

-- Its row is what makes counts take turns.
insert into backlog_standings (scope, id, pending, counted_at, refusing, retry_after_ms)
values ('all', '00000000-0000-0000-0000-000000000000', 0, '1970-01-01', false, 0);

-- Events that a tenant may hand in a second, at each API process. Null: the
-- tier's; null there as well: what the process is configured with.
alter table tenants add column ingest_per_second integer
    constraint tenants_check_ingest_per_second
    check (ingest_per_second between 1 and 1000000000);

alter table tiers add column tenant_ingest_per_second integer
    constraint tiers_check_tenant_ingest_per_second
    check (tenant_ingest_per_second between 1 and 1000000000);
