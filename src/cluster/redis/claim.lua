-- KEYS: the hold's record, the pulse, the entry of the sealed owner.
-- ARGV: the claimant, the sealed owner, the record's span, the span to settle (ms), what the names of entries begin with,
-- whether the hold becomes the claimant's (1) or would (0).
-- Returns {'mine', generation, highest round taken or -1}, {'other', owner} or {'unsettled'}.
local me = ARGV[1]
local owner = redis.call('HGET', KEYS[1], 'owner')
local generation = tonumber(redis.call('HGET', KEYS[1], 'generation') or 0)
if (owner or ARGV[2]) ~= me then
  local entry = owner and (ARGV[5] .. owner) or KEYS[3]
  if redis.call('EXISTS', entry) == 1 then
    return { 'other', owner or ARGV[2] }
  end
  if not is_settled(KEYS[2], tonumber(ARGV[4])) then
    return { 'unsettled' }
  end
  generation = generation + 1
end
if ARGV[6] == '1' then
  redis.call('HSET', KEYS[1], 'owner', me, 'generation', generation)
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return { 'mine', generation, tonumber(redis.call('HGET', KEYS[1], 'round') or -1) }
