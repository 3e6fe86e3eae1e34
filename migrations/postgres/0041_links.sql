-- A link is one of many: it has a name, and what it opened ends with it. The
-- SQLite half says the same.

-- For people; of links alone.
alter table sessions add column name text not null default '';

-- The digest of the link that opened the session. Null for what a key opened,
-- and for what was opened before this was written down, which lasts 12 hours.
alter table sessions add column link_digest bytea;
