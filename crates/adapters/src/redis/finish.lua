-- Ends leases of one shard: sets each job's next run and floor, or removes it.
--
-- KEYS  jobs   zset  destination -> due, microseconds since 1970
--       lease  hash  destination -> token, while taken and not finished
--       woken  hash  destination -> what a wake under the present lease asked:
--                    'look', or 'clear' to forget the floor too
--       floor  hash  destination -> no plain wake before, microseconds since 1970
-- ARGV  the channel to tell; for each job: destination, token, microseconds to
--       its next run (-1: remove it), microseconds to its floor (-1: none)
--
-- A job that a wake brought forward, to be the first to run, is told on the
-- channel. Any other next run is the caller's own, who need not be told.
--
-- A job whose token is another is left alone: it was taken again since. The
-- token is forgotten here, so a repeated call does nothing, whether or not the
-- first one was answered.
local jobs, lease, woken, floor = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local first = redis.call('ZRANGE', jobs, 0, 0, 'WITHSCORES')
local known = first[2] and tonumber(first[2]) or math.huge
local soonest_woken = math.huge

for i = 2, #ARGV, 4 do
  local name = ARGV[i]
  if redis.call('HGET', lease, name) == ARGV[i + 1] then
    local delay, blocked = tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
    local wake = redis.call('HGET', woken, name)
    redis.call('HDEL', lease, name)
    if wake then
      redis.call('HDEL', woken, name)
    end

    if delay < 0 and not wake then
      redis.call('ZREM', jobs, name)
      redis.call('HDEL', floor, name)
    else
      if wake == 'clear' then
        blocked = -1
      end
      if wake then
        -- Somebody woke it while we looked: we may not have seen why.
        local soonest = math.max(0, blocked)
        if delay < 0 or soonest < delay then
          delay = soonest
          soonest_woken = math.min(soonest_woken, now + delay)
        end
      end
      redis.call('ZADD', jobs, string.format('%.0f', now + delay), name)
      if blocked < 0 then
        redis.call('HDEL', floor, name)
      else
        redis.call('HSET', floor, name, string.format('%.0f', now + blocked))
      end
    end
  end
end

if soonest_woken < known then
  -- `pcall`: a user without the right to publish costs latency, not the finish.
  redis.pcall('PUBLISH', ARGV[1], string.format('%.0f', soonest_woken))
end
return 0
