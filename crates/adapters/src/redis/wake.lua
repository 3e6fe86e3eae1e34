-- Makes sure that destinations of one shard are looked at.
--
-- KEYS  jobs   zset  destination -> due, microseconds since 1970
--       lease  hash  destination -> token, while taken and not finished
--       woken  hash  destination -> what a wake under the present lease asked:
--                    'look', or 'clear' to forget the floor too
--       floor  hash  destination -> no plain wake before, microseconds since 1970
-- ARGV  the channel to tell; for each wake: destination, microseconds until it
--       should run, 1 to forget the floor
--
-- A wake that makes a job the first to run is told on the channel: whoever took
-- before sleeps until what was the first then. Any other is known to them.
--
-- A wake never moves a job later, and a mark under lease is set, not counted:
-- a repeated call at worst looks once more.
local jobs, lease, woken, floor = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local first = redis.call('ZRANGE', jobs, 0, 0, 'WITHSCORES')
local known = first[2] and tonumber(first[2]) or math.huge
local soonest = math.huge

for i = 2, #ARGV, 3 do
  local name, at, clear = ARGV[i], now + tonumber(ARGV[i + 1]), ARGV[i + 2] == '1'
  local leased = redis.call('HEXISTS', lease, name) == 1
  if leased then
    -- The present lease will not end without this being seen by `finish`. Once
    -- asked, 'clear' stays.
    redis.call(clear and 'HSET' or 'HSETNX', woken, name, clear and 'clear' or 'look')
  end
  if clear then
    redis.call('HDEL', floor, name)
  end

  local due = redis.call('ZSCORE', jobs, name)
  if not due then
    redis.call('ZADD', jobs, string.format('%.0f', at), name)
    soonest = math.min(soonest, at)
  elseif clear or not leased then
    local blocked = redis.call('HGET', floor, name)
    if blocked then
      at = math.max(at, tonumber(blocked))
    end
    if at < tonumber(due) then
      redis.call('ZADD', jobs, string.format('%.0f', at), name)
      soonest = math.min(soonest, at)
    end
  end
end

if soonest < known then
  -- `pcall`: a user without the right to publish costs latency, not the wake.
  redis.pcall('PUBLISH', ARGV[1], string.format('%.0f', soonest))
end
return 0
