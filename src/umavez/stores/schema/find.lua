-- One page of an index, oldest first, with the values its entries lead to.
--
-- ARGV 1 offset of the clock, ms   2 prefix   3 kind of index: status or instance   4 its name
--      5 older_than, ms or ''      6 start    7 count
--
-- An entry whose value is gone (Redis's TTL) or has moved to another index is removed in passing.
-- Answers {now, entries looked at, values}.

local call, format, match = redis.call, string.format, string.match
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
local prefix, kind, name = ARGV[2], ARGV[3], ARGV[4]
local index = prefix .. ':' .. kind .. ':' .. name
local edge = ARGV[5] == '' and '+inf' or format('%.0f', now - ARGV[5])

local function belongs(value)
  local status, rest = match(value, '^%[%d+,%d+,%d+,%s*%w+,%s*%w+,"(%u+)"%s*,"[^"]*",()')
  if not status then
    return false
  end
  return (kind == 'status' and status or match(value, '^"([^"]*)"', rest)) == name
end

local entries = call('ZRANGE', index, '-inf', edge, 'BYSCORE', 'LIMIT', ARGV[6], ARGV[7])
local values = {}
for _, digest in ipairs(entries) do
  local value = call('GET', prefix .. ':' .. digest)
  if value and belongs(value) then
    values[#values + 1] = value
  else
    call('ZREM', index, digest)
  end
end
return {now, #entries, values}
