-- Put a draft where the record stamped `expected` stands; otherwise answer what stands there and write nothing.
--
-- KEYS 1 the record: prefix, colon, digest (64 hexadecimal digits)
-- ARGV 1 expected stamp, quoted ('' nothing stands there; '?' only look)   2 offset of the clock, ms
--      3 stamp, quoted   4 status, quoted, nine characters   5 process instance, quoted ('' none)
--      6 the rest of the record, as JSON up to its closing bracket
--      7 flags: 'c' asks for a new fence, 'f' begins a new life   8 lease, ms or ''   9 keep, ms or ''
--
-- A record is one JSON array: fence, created, updated, lease until, expires, status, stamp, instance, rest.
-- Up to the stamp every part has a fixed width, filled with spaces, because cutting is faster than matching.
-- Stamp and instance hold no bare quote inside (it is written \u0022), so that their end can be seen here.
-- Answers {fence, now, stamp} when written, else {value or nil, now}.

local GRACE = 86400000 -- ms a value outlives its expiry: the comparison of expires_at decides, never Redis's own TTL

local NEVER = '         null' -- as wide as an instant

local call, match, sub = redis.call, string.match, string.sub
local key, expected, mark, next_status = KEYS[1], ARGV[1], ARGV[3], ARGV[4]
local time = call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)
local now = clock + ARGV[2]
if now < 1e12 or now >= 1e13 then
  return redis.error_reply('CLOCK an instant must have thirteen digits')
end

local value = call('GET', key)
if expected == '?' or (value and expected == '') or (not value and expected ~= '') then
  return {value, now}
end

local fence, created, expires, status, instance
if value then
  local last = 84 + #expected
  if sub(value, 85, last) ~= expected then
    return {value, now}
  end
  fence, created, expires, status = sub(value, 2, 17), sub(value, 19, 31), sub(value, 61, 73), sub(value, 75, 83)
  instance = match(value, '^"([^"]*)"', last + 2)
end

local prefix, digest, flags = sub(key, 1, -66), sub(key, -64), ARGV[7]
if not value or match(flags, 'c') then
  -- The server's microseconds, or one more than the last fence: a counter that is lost with its server, or falls
  -- back with a replica, does not begin again under fences that were given. Sixteen digits, so texts compare.
  fence = time[1] .. sub('00000' .. time[2], -6)
  local last = call('SET', prefix .. ':fence', fence, 'GET')
  if last and last >= fence then
    fence = string.format('%.0f', last + 1)
    call('SET', prefix .. ':fence', fence)
  end
end
local begins = not value or match(flags, 'f')
if begins then
  created = now
end

local mine = match(ARGV[5], '^"(.*)"$')
local lease = ARGV[8] ~= '' and now + ARGV[8] or NEVER
local ends = ARGV[9] ~= '' and now + ARGV[9]
local entry = mine and digest .. ':' .. mine or digest

-- First add to the indexes, then write, then remove from them: whatever fails, no record is missing from an index.
if begins or status ~= next_status then
  call('ZADD', prefix .. ':status:' .. match(next_status, '%u+'), created, digest)
end
if mine and (begins or mine ~= instance) then
  call('ZADD', prefix .. ':instance:' .. mine, created, digest)
end
local text = '[' .. fence .. ',' .. created .. ',' .. now .. ',' .. lease .. ',' .. (ends or NEVER) .. ',' ..
  next_status .. ',' .. mark .. ',' .. (mine and ARGV[5] or 'null') .. ',' .. ARGV[6]
if ends then
  call('ZADD', prefix .. ':expiry', ends, entry)
  call('SET', key, text, 'PXAT', clock + ARGV[9] + GRACE)
else
  call('SET', key, text)
end

if status and status ~= next_status then
  call('ZREM', prefix .. ':status:' .. match(status, '%u+'), digest)
end
if instance and instance ~= mine then
  call('ZREM', prefix .. ':instance:' .. instance, digest)
end
if value and expires ~= NEVER then
  local before = instance and digest .. ':' .. instance or digest
  if not ends or before ~= entry then
    call('ZREM', prefix .. ':expiry', before)
  end
end
return {tonumber(fence), now, mark}
