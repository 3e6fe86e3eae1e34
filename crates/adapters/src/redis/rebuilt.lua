-- Notes that this shard's jobs were rebuilt in the life of this name.
--
-- KEYS  life   hash  name: of this life; run: the server's run id at its
--                    begin; built: 1 once its jobs were rebuilt
-- ARGV  the name of the life that was rebuilt
--
-- Another name, or none, means that the jobs were lost again since: then
-- nothing is noted. A repeated call changes nothing.
local life = KEYS[1]
if redis.call('HGET', life, 'name') == ARGV[1] then
  redis.call('HSET', life, 'built', '1')
end
return 0
