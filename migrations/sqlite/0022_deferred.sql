-- Nothing is admitted before that: a worker had no place for it. Only admission
-- asks; what has a permit already may start.
alter table pacing add column deferred_until integer;
