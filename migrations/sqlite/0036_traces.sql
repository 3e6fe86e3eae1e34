-- Traces: to which one an event belongs, and who is told. The Postgres half says
-- the same.

-- A traceparent, and after a space what came as tracestate. Null where nobody
-- traces. Whoever reads the column takes what is malformed for none.
alter table events add column trace text;

-- Whether its receiver is sent the trace's headers.
alter table destinations add column pass_traceparent integer not null default 0
    constraint destinations_check_pass_traceparent check (pass_traceparent in (0, 1));

-- Workers keep where requests go by the epoch.
create trigger destinations_after_traces after update of pass_traceparent on destinations
when old.pass_traceparent <> new.pass_traceparent
begin
    insert into limit_changes (destination_id, deleted_at, revokes)
    values (new.id, new.deleted_at, 1);
end;
