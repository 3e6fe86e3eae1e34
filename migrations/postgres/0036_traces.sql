-- Traces: to which one an event belongs, and who is told. The SQLite half says
-- the same.

-- A traceparent, and after a space what came as tracestate. Null where nobody
-- traces. Without a check: that would read every event there is, and whoever
-- reads the column takes what is malformed for none.
alter table events add column trace text;

-- Whether its receiver is sent the trace's headers.
alter table destinations add column pass_traceparent boolean not null default false;

-- Workers keep where requests go by the epoch. By its name it comes before the
-- trigger that decides what a change revokes, which then sees another epoch.
create function destinations_before_traces() returns trigger
    language plpgsql
as $$
begin
    new.epoch := greatest(new.epoch, old.epoch + 1);
    return new;
end;
$$;

create trigger destinations_before_traces before update on destinations
    for each row when (old.pass_traceparent <> new.pass_traceparent)
    execute function destinations_before_traces();
