-- An order and its event, in one transaction: both, or neither.
begin;

insert into orders (id, total_cents) values (4711, 4200);

-- To everybody who subscribes to the type. For one destination, set
-- destination_id instead of the type, or beside it.
insert into paceline.outbox (event_type, payload)
values ('order.paid', '{"order": 4711, "total_cents": 4200}');

commit;
