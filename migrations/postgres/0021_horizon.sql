-- Where admission begins to look. An attempt with a smaller id is over, and has
-- been for so long that no limit counts it: so the days before are not asked,
-- however many are kept.
--
-- True for ever once it is found: what is over stays over, and new ids are larger
-- than all that were given. It is found anew once an hour, and cached by nobody:
-- whoever needs it reads it. Whoever sets old attempts to `waiting` by hand, or
-- restores some, sets it to 0, or waits for the next look.
create table attempts_horizon (
    id integer primary key default 1
        constraint attempts_horizon_check_id check (id = 1),
    attempt_id bigint not null,
    -- What the last look has found, and when. The horizon follows when the next
    -- one finds no less.
    seen bigint not null,
    seen_at timestamptz
);

insert into attempts_horizon (attempt_id, seen) values (0, 0);
