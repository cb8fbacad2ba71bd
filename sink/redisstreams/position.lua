-- Stores a value in the hash KEYS[1], or removes it if the value is empty.
--
-- ARGV[1]  the field of the value
-- ARGV[2]  the field of the counter: the number of the last write, and the session and the number of the session that
--          has written it
-- ARGV[3]  the session, ARGV[4] the number of the write in it
-- ARGV[5]  the value
--
-- A write that arrives behind a later one of its session, because its connection was lost, changes nothing.
local state = redis.call('HGET', KEYS[1], ARGV[2]) or '0  0'
local number, session, written = string.match(state, '^(%d+) (%S*) (%d+)$')
if session == ARGV[3] and tonumber(written) > tonumber(ARGV[4]) then return 0 end
number = string.format('%.0f', tonumber(number) + 1)
redis.call('HSET', KEYS[1], ARGV[2], number .. ' ' .. ARGV[3] .. ' ' .. ARGV[4])
if ARGV[5] == '' then
	redis.call('HDEL', KEYS[1], ARGV[1])
else
	redis.call('HSET', KEYS[1], ARGV[1], number .. ' ' .. ARGV[5])
end
return 1
