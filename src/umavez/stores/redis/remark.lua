-- Keep an event that belongs to no swap, where a record stands and fewer than so many of its kind were kept.
--
-- KEYS 1 the record: prefix, colon, digest (64 hexadecimal digits)
-- ARGV 1 offset of the clock, ms   2 fence   3 the rest of the event, as in swap.lua   4 how many remarks   5 how many events
-- Answers {1} when it was kept, else {0}.

local call, find, sub = redis.call, string.find, string.sub
local key = KEYS[1]
if call('EXISTS', key) == 0 then
  return {0}
end
local events, kept = sub(key, 1, -66) .. ':events:' .. sub(key, -64), 0
for _, event in ipairs(call('LRANGE', events, 0, -1)) do
  if find(event, '^%[%d+,%s*%d+,"lost"') or find(event, '^%[%d+,%s*%d+,"mismatched"') then
    kept = kept + 1
  end
end
if kept >= tonumber(ARGV[4]) then
  return {0}
end
local time = call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1])
call('RPUSH', events, '[' .. now .. ',' .. ARGV[2] .. ',' .. ARGV[3])
call('LTRIM', events, -ARGV[5], -1)
local left = call('PTTL', key)
if left > 0 then
  call('PEXPIRE', events, left)
end
return {1}
