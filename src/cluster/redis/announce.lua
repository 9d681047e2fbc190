-- KEYS: the replica's entry, the pulse. ARGV: its address, the entry's span, the span to settle (ms).
-- Returns whether the entry was there.
local settle_ms = tonumber(ARGV[3])
if settle_ms > 0 then
  local now = now_ms()
  local span = redis.call('HMGET', KEYS[2], 'first', 'last')
  local first = tonumber(span[1] or now)
  local last = tonumber(span[2] or 0)
  -- A clock that was set back counts as a gap as well.
  if now < last or now - last > settle_ms / 2 then
    first = now
  end
  redis.call('HSET', KEYS[2], 'first', string.format('%.0f', first), 'last', string.format('%.0f', now))
  redis.call('PEXPIRE', KEYS[2], settle_ms * 2)
end
local was_alive = redis.call('EXISTS', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return was_alive
