-- KEYS: the list. ARGV: up to which byte it is read. Its bytes, none when there is none, and how long it stays (ms).
return {redis.call('GETRANGE', KEYS[1], 0, ARGV[1]), redis.call('PTTL', KEYS[1])}
