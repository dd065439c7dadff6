-- Delete records that expired at least `older_than` ago, and what the indexes still say about them.
--
-- ARGV 1 offset of the clock, ms   2 prefix   3 older_than, ms   4 count   5 places to look at, one digit each
--
-- The record itself is asked before it is deleted: an entry may be left from an earlier life of its key.
-- Answers {entries looked at, records swept}.

local call, format, match, sub = redis.call, string.format, string.match, string.sub
local time = call('TIME')
local edge = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1] - ARGV[3]
local prefix, count = ARGV[2], tonumber(ARGV[4])
local index = prefix .. ':records'

local function lives(value)
  local expires = match(value, '^%[2,%d+,%d+,%d+,%s*%w+,%s*(%w+),')
  return expires and (expires == 'null' or tonumber(expires) > edge)
end

local looked_at, swept = 0, 0
for place in string.gmatch(ARGV[5], '%d') do
  local first = place * 1e14
  local range = {format('%.0f', first), format('%.0f', first + edge)}
  local entries = call('ZRANGE', index, range[1], range[2], 'BYSCORE', 'LIMIT', 0, count - looked_at)
  looked_at = looked_at + #entries
  for _, entry in ipairs(entries) do
    local digest, instance = sub(entry, 1, 64), sub(entry, 66)
    local key = prefix .. ':' .. digest
    local value = call('GET', key)
    if not (value and lives(value)) then
      call('UNLINK', key, prefix .. ':events:' .. digest, prefix .. ':origin:' .. digest)
      call('ZREM', prefix .. ':instance:' .. instance, digest)
      swept = swept + 1
    end
    call('ZREM', index, entry)
  end
end
return {looked_at, swept}
