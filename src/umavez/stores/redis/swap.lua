-- Put a draft where the record stamped `expected` stands; otherwise answer what stands there and write nothing.
--
-- KEYS 1 the record: prefix, colon, digest (64 hexadecimal digits)
-- ARGV 1 expected stamp, quoted ('' nothing stands there; '?' only look)   2 offset of the clock, ms
--      3 stamp, quoted   4 the rest of the record, from the comma behind the stamp
--      5 process instance, quoted ('' none)   6 flags: 'c' asks for a new fence, 'f' begins a new life
--      7 place in the index, one digit   8 lease, ms ('' none)   9 keep, ms, and 10 Redis's own TTL, ms (or neither, or '')
--      11 the event that it leaves, behind time and fence (or none, or '')   12 how many events a key keeps
--      13 where the claim came from (or none): kept beside the record for a week, since older releases could not read a record
--      that holds more; what stands is then shown with its own
--
-- A record is a JSON array: layout, fence, created, updated, lease until, expires, stamp, instance, rest; behind its
-- bracket stands the body as it is. Up to the stamp every part has a fixed width, filled with spaces, because cutting
-- is faster than matching. Stamp and instance hold no bare quote inside (it is written \u0022), so that their end can
-- be seen here.
--
-- One index holds every record once; its score is the place and an instant of 14 digits: when the record was created,
-- or, in places whose records may be swept, when it expires. So a change of status moves an entry with one command.
-- Answers {fence, now, stamp} when written, else {value or nil, now}, or {value or nil, now, '', origin or ''}.

local NEVER = '         null' -- as wide as an instant
local LATEST = 9999999999999 -- the last instant of thirteen digits; a lease or keep beyond it ends there
local STAMP = 77 -- where the stamp begins
local WEEK = 604800000 -- how long an origin is kept, ms

local call, format, sub = redis.call, string.format, string.sub
local key, expected = KEYS[1], ARGV[1]
local time = call('TIME')
local seconds, micros = time[1], time[2]
local clock = seconds * 1000 + (micros - micros % 1000) / 1000 + ARGV[2]
if clock < 1e12 or clock > LATEST then
  return redis.error_reply('CLOCK an instant must have thirteen digits')
end

local origin = ARGV[13] and sub(key, 1, -66) .. ':origin:' .. sub(key, -64)
local function standing(value)
  if not origin then
    return {value, clock}
  end
  return {value, clock, '', call('GET', origin) or ''}
end

local value = call('GET', key)
if expected == '?' or (value and expected == '') or (not value and expected ~= '') then
  return standing(value)
end

local fence, created, instance
if value then
  local behind = STAMP + #expected
  if sub(value, STAMP, behind - 1) ~= expected then
    return standing(value)
  end
  fence, created = sub(value, 4, 19), sub(value, 21, 33)
  if sub(value, behind, behind + 1) == ',"' then
    instance = string.match(value, '^[^"]*', behind + 2)
  end
end

local prefix, digest, flags = sub(key, 1, -66), sub(key, -64), ARGV[6]
if not value or flags == 'c' or flags == 'cf' then
  -- The server's microseconds, or one more than the last fence: a counter that is lost with its server, or falls
  -- back with a replica, does not begin again under fences that were given. Sixteen digits, so texts compare.
  fence = seconds .. sub('00000' .. micros, -6)
  local last = call('SET', prefix .. ':fence', fence, 'GET')
  if last and last >= fence then
    fence = format('%.0f', last + 1)
    call('SET', prefix .. ':fence', fence)
  end
end
local now = format('%.0f', clock)
local begins = not value or flags == 'f' or flags == 'cf'
if begins then
  created = now
end

local mine = ARGV[5] ~= '' and sub(ARGV[5], 2, -2) or nil
local lease, ends = NEVER, nil
if ARGV[8] ~= '' then
  lease = format('%.0f', math.min(clock + ARGV[8], LATEST))
end
if ARGV[9] and ARGV[9] ~= '' then
  ends = format('%.0f', math.min(clock + ARGV[9], LATEST))
end
local index = prefix .. ':records'
local entry = mine and digest .. ':' .. mine or digest

-- First into the index, then the record, then out of where it was: whatever fails, no record is missing from it.
call('ZADD', index, ARGV[7] .. '0' .. (ends or created), entry)
if mine and (begins or mine ~= instance) then
  call('ZADD', prefix .. ':instance:' .. mine, created, digest)
end
local text = '[2,' .. fence .. ',' .. created .. ',' .. now .. ',' .. lease .. ',' .. (ends or NEVER) .. ',' ..
  ARGV[3] .. ARGV[4]
if ends then
  call('SET', key, text, 'PX', ARGV[10])
else
  call('SET', key, text)
end

-- Last, and without an error of its own: an event that cannot be kept is no reason to leave the index as it was.
if ARGV[11] and ARGV[11] ~= '' then
  local events = prefix .. ':events:' .. digest
  redis.pcall('RPUSH', events, '[' .. now .. ',' .. fence .. ',' .. ARGV[11])
  redis.pcall('LTRIM', events, -ARGV[12], -1)
  if ends then
    redis.pcall('PEXPIRE', events, ARGV[10])
  else
    redis.pcall('PERSIST', events)
  end
end

if origin then
  redis.pcall('SET', origin, ARGV[13], 'PX', WEEK)
end

if value and instance ~= mine then
  call('ZREM', index, instance and digest .. ':' .. instance or digest)
  if instance then
    call('ZREM', prefix .. ':instance:' .. instance, digest)
  end
end
return {tonumber(fence), clock, ARGV[3]}
