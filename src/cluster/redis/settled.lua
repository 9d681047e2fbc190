-- Whether who is not in the directory may be taken for dead. It may not while the store is back for so short a time
-- that live replicas have had no chance to announce themselves: after a start without data, or when it stood still
-- for longer than announcements last. The pulse says since when announcements have come without a gap, and when
-- the last one came.
local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function is_settled(pulse, settle_ms)
  if settle_ms == 0 then
    return true
  end
  local span = redis.call('HMGET', pulse, 'first', 'last')
  if not span[1] or not span[2] then
    return false
  end
  local now = now_ms()
  return now - tonumber(span[1]) >= settle_ms and now - tonumber(span[2]) <= settle_ms / 2
end
