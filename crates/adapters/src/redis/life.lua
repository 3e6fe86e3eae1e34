-- Which life this shard is in, and whether its jobs were rebuilt in it.
--
-- KEYS  life   hash  name: of this life; run: the server's run id at its
--                    begin, and of how many shards; built: 1 once its jobs were
--                    rebuilt
-- ARGV  the same run id and number now, a name for a new life
-- Gives {name, 1 if built}
--
-- A wiped server has no name, a restarted or failed-over one another run id, a
-- change of the number of shards another number: each begins a life, which is unbuilt until somebody calls `rebuilt` with its
-- name. Everybody who asks meanwhile is given the same name; a repeated call
-- changes nothing.
local life = KEYS[1]
local known = redis.call('HMGET', life, 'name', 'run', 'built')
if known[1] and known[2] == ARGV[1] then
  return { known[1], known[3] and 1 or 0 }
end
redis.call('DEL', life)
redis.call('HSET', life, 'name', ARGV[2], 'run', ARGV[1])
return { ARGV[2], 0 }
