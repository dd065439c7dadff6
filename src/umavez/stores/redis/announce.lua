-- Say that a process lives, and forget those that were not seen for long.
--
-- ARGV 1 offset of the clock, ms   2 prefix of the store   3 prefix of the process   4 what it says of itself, as JSON up to its age
--      5 its age, ms   6 after how long one that was not seen is forgotten, ms
-- Answers {how many were forgotten}.

local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
local holders, seen = ARGV[2] .. ':holders', ARGV[2] .. ':holders:seen'
call('HSET', holders, ARGV[3], ARGV[4] .. ',' .. format('%.0f', now - ARGV[5]) .. ',' .. format('%.0f', now) .. ']')
call('ZADD', seen, format('%.0f', now), ARGV[3])
local gone = call('ZRANGE', seen, '-inf', format('%.0f', now - ARGV[6]), 'BYSCORE', 'LIMIT', 0, 100)
for _, prefix in ipairs(gone) do
  call('HDEL', holders, prefix)
  call('ZREM', seen, prefix)
end
return {#gone}
