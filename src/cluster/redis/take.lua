-- KEYS and ARGV: those of claim.lua, then the round and the digest of the answers.
-- Returns {'fresh'}, {'again', by whom}, {'otherwise'}, {'lost', owner} or {'unsettled'}.
local me = ARGV[1]
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= me then
  return { 'lost', owner }
end
if not owner then
  local generation = 0
  if ARGV[2] ~= me then
    if redis.call('EXISTS', KEYS[3]) == 1 then
      return { 'lost', ARGV[2] }
    end
    if not is_settled(KEYS[2], tonumber(ARGV[4])) then
      return { 'unsettled' }
    end
    generation = 1
  end
  redis.call('HSET', KEYS[1], 'owner', me, 'generation', generation)
end
local before = redis.call('HMGET', KEYS[1], 'round', 'digest', 'by')
local round = tonumber(ARGV[6])
local last = tonumber(before[1] or -1)
local said = { 'fresh' }
if last > round then
  said = { 'otherwise' }
elseif last == round and before[2] == ARGV[7] then
  said = { 'again', before[3] }
elseif last == round and before[2] ~= '' then
  said = { 'otherwise' }
else
  redis.call('HSET', KEYS[1], 'round', ARGV[6], 'digest', ARGV[7], 'by', me)
end
-- Last of all: a span of 0 takes the record away, and nothing may be written after that.
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return said
