-- KEYS: the hold's record. ARGV: the claimant, the round, the digest of the answers.
-- The round stays noted, with answers that nobody has: others may be taken, and those of earlier rounds may not.
local record = redis.call('HMGET', KEYS[1], 'owner', 'by', 'round', 'digest')
if record[1] == ARGV[1] and record[2] == ARGV[1] and record[3] == ARGV[2] and record[4] == ARGV[3] then
  redis.call('HSET', KEYS[1], 'digest', '')
end
return 0
