-- One page of an index, in the order of its scores, with the values its entries lead to.
--
-- ARGV 1 offset of the clock, ms   2 prefix   3 name of the index: records, or instance: and a process instance
--      4 lowest score   5 entries of that score to skip   6 highest score   7 count
--      8 what to add to now for the highest score ('' nothing: take 6)
--
-- An entry whose value is gone (Redis's TTL), or stands in another entry, is removed in passing.
-- The next page begins at a score, not at a rank: records that leave the index meanwhile shift nobody.
-- Answers {now, entries looked at, score of the last, entries of that score to skip, values}.

local call, format, match, sub = redis.call, string.format, string.match, string.sub
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
local prefix, name, lowest = ARGV[2], ARGV[3], ARGV[4]
local index = prefix .. ':' .. name
local wanted = match(name, '^instance:(.*)$')
local highest = ARGV[8] == '' and ARGV[6] or format('%.0f', now + ARGV[8])

local function belongs(value, entry)
  local rest = match(value, '^%[2,%d+,%d+,%d+,%s*%w+,%s*%w+,"[^"]*",()')
  if not rest then
    return false
  end
  local instance = match(value, '^"([^"]*)"', rest)
  if wanted then
    return instance == wanted
  end
  return entry == sub(entry, 1, 64) .. (instance and ':' .. instance or '')
end

local entries = call('ZRANGE', index, lowest, highest, 'BYSCORE', 'LIMIT', ARGV[5], ARGV[7], 'WITHSCORES')
local values, last, skip = {}, lowest, tonumber(ARGV[5])
for place = 1, #entries, 2 do
  local entry, score = entries[place], entries[place + 1]
  if tonumber(score) ~= tonumber(last) then
    last, skip = score, 0
  end
  local value = call('GET', prefix .. ':' .. sub(entry, 1, 64))
  if value and belongs(value, entry) then
    values[#values + 1] = value
    skip = skip + 1
  else
    call('ZREM', index, entry)
  end
end
return {now, #entries / 2, last, skip, values}
