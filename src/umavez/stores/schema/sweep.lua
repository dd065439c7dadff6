-- Delete records that expired at least `older_than` ago, and what the indexes still say about them.
--
-- ARGV 1 offset of the clock, ms   2 prefix   3 older_than, ms   4 count
--
-- The record itself is asked before it is deleted: an entry may be left from an earlier life of its key.
-- Answers {entries looked at, records swept}.

local call, format, match = redis.call, string.format, string.match
local time = call('TIME')
local edge = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1] - ARGV[3]
local prefix = ARGV[2]
local expiry = prefix .. ':expiry'

local function lives(value)
  local expires, status = match(value, '^%[%d+,%d+,%d+,%s*%w+,%s*(%w+),"(%u+)"%s*,')
  return status and (expires == 'null' or tonumber(expires) > edge), status
end

local entries = call('ZRANGE', expiry, '-inf', format('%.0f', edge), 'BYSCORE', 'LIMIT', 0, ARGV[4])
local swept = 0
for _, entry in ipairs(entries) do
  local digest, instance = match(entry, '^(%x+):?(.*)$')
  local key = prefix .. ':' .. digest
  local value = call('GET', key)
  local alive, status = false, nil
  if value then
    alive, status = lives(value)
  end
  if not alive then
    call('UNLINK', key)
    call('ZREM', prefix .. ':instance:' .. instance, digest)
    swept = swept + 1
  end
  for _, name in ipairs({'PENDING', 'SUCCESS', 'FAILED', 'UNKNOWN'}) do
    if not alive or name ~= status then
      call('ZREM', prefix .. ':status:' .. name, digest)
    end
  end
  call('ZREM', expiry, entry)
end
return {#entries, swept}
