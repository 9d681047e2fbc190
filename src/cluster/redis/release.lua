-- KEYS: the hold's record. ARGV: whose it has to be, for how long it stays (ms; 0: not at all).
if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
