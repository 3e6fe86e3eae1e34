-- For people who search: a tenant's events, the newest first, and no other's.
create index events_of_tenant on events (tenant_id, id);
