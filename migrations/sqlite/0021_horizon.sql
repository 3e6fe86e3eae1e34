-- Postgres notes here from which attempt on admission has to look, so as not to
-- ask days of which nothing is needed. A file has no days.
select 1;
