-- Postgres keeps attempts and events by the day from here on, so that a day
-- that is over is dropped as a whole. SQLite has no partitions: a file gives
-- rows back one by one, in small steps, and there is nothing to change in it.
select 1;
