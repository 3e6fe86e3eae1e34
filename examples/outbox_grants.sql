-- What the role `shop` needs to hand events to Paceline, and nothing else.
grant usage on schema paceline to shop;
grant insert on paceline.outbox to shop;
