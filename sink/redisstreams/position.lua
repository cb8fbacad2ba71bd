-- Stores a value in the hash KEYS[1], or removes it if the value is empty. Returns -1 if somebody else is the owner,
-- and -2 if nobody is, because the hash was removed.
--
-- ARGV[1]  the field of the value
-- ARGV[2]  the field of the number of the last write
-- ARGV[3]  the field of the owner: its id and the number of its last write
-- ARGV[4]  the id of the owner that writes, or nothing: anybody may write the value
-- ARGV[5]  the number of the write of the owner; with 0 it becomes the owner, and no value is stored
-- ARGV[6]  the value
--
-- A write that arrives behind a later one of the owner, because its connection was lost, changes nothing.
if ARGV[4] ~= '' then
	local owner = redis.call('HGET', KEYS[1], ARGV[3])
	local id, written = string.match(owner or ' 0', '^(%S*) (%d+)$')
	if ARGV[5] ~= '0' then
		if not owner then return -2 end
		if id ~= ARGV[4] then return -1 end
		if tonumber(written) > tonumber(ARGV[5]) then return 0 end
	end
	redis.call('HSET', KEYS[1], ARGV[3], ARGV[4] .. ' ' .. ARGV[5])
	if ARGV[5] == '0' then return 1 end
end
local number = string.format('%.0f', tonumber(redis.call('HGET', KEYS[1], ARGV[2]) or '0') + 1)
redis.call('HSET', KEYS[1], ARGV[2], number)
if ARGV[6] == '' then
	redis.call('HDEL', KEYS[1], ARGV[1])
else
	redis.call('HSET', KEYS[1], ARGV[1], number .. ' ' .. ARGV[6])
end
return 1
