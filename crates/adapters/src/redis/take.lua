-- Takes up to `max` due jobs of one shard, the longest due first, by pushing
-- each forward to now + lease.
--
-- KEYS  jobs   zset  destination -> due, microseconds since 1970
--       lease  hash  destination -> token, while taken and not finished
--       woken  hash  destination -> what a wake under the present lease asked
-- ARGV  max, lease in microseconds, the token of this call
-- Gives {microseconds to the next due job (0: due now, -1: none),
--        {{destination, 1 if its last lease ended without a finish,
--          microseconds overdue}, ...}}
--
-- If the answer is lost, nobody knows the token: the jobs lapse and are taken
-- again after `lease`. A repeated call takes other jobs.
local jobs, lease, woken = KEYS[1], KEYS[2], KEYS[3]
local max = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local taken = {}
if max > 0 then
  local due = redis.call('ZRANGEBYSCORE', jobs, '-inf', string.format('%.0f', now),
    'WITHSCORES', 'LIMIT', 0, max)
  if #due > 0 then
    local next_run = string.format('%.0f', now + tonumber(ARGV[2]))
    local names, scores, tokens = {}, {}, {}
    for i = 1, #due, 2 do
      names[#names + 1] = due[i]
      scores[#scores + 1] = next_run
      scores[#scores + 1] = due[i]
      tokens[#tokens + 1] = due[i]
      tokens[#tokens + 1] = ARGV[3]
    end
    local held = redis.call('HMGET', lease, unpack(names))
    for i, name in ipairs(names) do
      taken[i] = { name, held[i] and 1 or 0, now - tonumber(due[2 * i]) }
    end
    redis.call('ZADD', jobs, unpack(scores))
    redis.call('HSET', lease, unpack(tokens))
    -- A wake before this take is answered by this take.
    redis.call('HDEL', woken, unpack(names))
  end
end

local first = redis.call('ZRANGE', jobs, 0, 0, 'WITHSCORES')
local next_due = -1
if first[2] then
  next_due = math.max(0, tonumber(first[2]) - now)
end
return { next_due, taken }
