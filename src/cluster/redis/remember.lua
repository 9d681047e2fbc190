-- KEYS: the hold's record, the outcome. ARGV: whose the hold has to be if it has a record, the outcome, its span (ms; 0: none).
local owner = redis.call('HGET', KEYS[1], 'owner')
if not owner or owner == ARGV[1] then
  if tonumber(ARGV[3]) > 0 then
    redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
  else
    redis.call('DEL', KEYS[2])
  end
end
return 0
