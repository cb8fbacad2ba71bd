-- Appends records to the stream KEYS[1], atomically and in order, and stops at the first error.
--
-- ARGV[1]  the records in MessagePack: an array with, for each record, the number of items of its fields, its id, and
--          the names and values of its fields; an id that is empty: the record has none of its own
-- ARGV[2]  'create' to create a missing stream
-- ARGV[3]  MAXLEN or MINID to trim the stream, or empty; ARGV[4] is the threshold
-- ARGV[5]  the last id of the stream before these records were sent for the first time, if this is a resend and the
--          id is known, or empty
-- ARGV[6]  'confirm' if WAIT follows
--
-- Returns how many of the records the stream has, the error for the next one, or an empty string, the last id, and the one
-- before the first record that got an id here, or an empty string if there is none.
local key, create, trim = KEYS[1], ARGV[2] == 'create', ARGV[3]
local items = cmsgpack.unpack(ARGV[1])
local count, at, stored, wrote = #items, 1, 0, false
local last -- the last id of the stream, once it is known
local began = '' -- the last id before the first record that got an id here
local sent -- entries that an earlier request may have appended, and where to go on among them
local sentAt = 1

local function add(id, from, to)
	local how = trim
	trim = '' -- once a request
	if how ~= '' then
		if create then return redis.pcall('XADD', key, how, '~', ARGV[4], id, unpack(items, from, to)) end
		return redis.pcall('XADD', key, 'NOMKSTREAM', how, '~', ARGV[4], id, unpack(items, from, to))
	end
	if create then return redis.pcall('XADD', key, id, unpack(items, from, to)) end
	return redis.pcall('XADD', key, 'NOMKSTREAM', id, unpack(items, from, to))
end

-- readLast sets last. It returns the error of Redis, if any.
local function readLast()
	if last then return nil end
	local info = redis.pcall('XINFO', 'STREAM', key)
	if info.err then
		if not string.find(info.err, 'no such key', 1, true) then return info end
		last = '0-0'
		return nil
	end
	for n = 1, #info, 2 do
		if info[n] == 'last-generated-id' then last = info[n + 1] end
	end
	return nil
end

-- increment adds 1 to a decimal number, which may be larger than a number of Lua can be.
local function increment(digits)
	local head, nines = string.match(digits, '^(%d-)(9*)$')
	local zeros = string.rep('0', #nines)
	if head == '' then return '1' .. zeros end
	return string.sub(head, 1, -2) .. string.char(string.byte(head, -1) + 1) .. zeros
end

-- following returns the lowest id above id.
local function following(id)
	local ms, seq = string.match(id, '^(%d+)-(%d+)$')
	if seq == '18446744073709551615' then return increment(ms) .. '-0' end
	return ms .. '-' .. increment(seq)
end

-- eventID returns the value of the first field named id.
local function eventID(fields, from, to)
	for n = from, to, 2 do
		if fields[n] == 'id' then return fields[n + 1] end
	end
	return nil
end

local function equal(fields, from, to)
	if #fields ~= to - from + 1 then return false end
	for n = 1, #fields do
		if fields[n] ~= items[from + n - 1] then return false end
	end
	return true
end

-- isStored reports whether the stream has the record with the id: an entry with this id that is the same event. Records
-- without an event id must be equal.
local function isStored(id, from, to)
	local entries = redis.pcall('XRANGE', key, id, id)
	if entries.err or not entries[1] then return false end
	local want = eventID(items, from, to)
	if want then return eventID(entries[1][2], 1, #entries[1][2]) == want end
	return equal(entries[1][2], from, to)
end

-- wasSent reports whether an earlier request has appended the record with another id: an equal entry behind those that
-- were there before. The records of a request are appended in order, so the search goes on behind the last one found.
local function wasSent(from, to)
	if ARGV[5] == '' then return false end
	if not sent then
		sent = redis.pcall('XRANGE', key, '(' .. ARGV[5], '+', 'COUNT', count + 1000)
		if sent.err then sent = {} end
	end
	for n = sentAt, #sent do
		if equal(sent[n][2], from, to) then
			sentAt = n + 1
			return true
		end
	end
	return false
end

local failure = ''
while at < count do
	local id, from, to = items[at + 1], at + 2, at + 1 + items[at]
	local reply
	if id ~= '' then
		reply = add(id, from, to)
		if type(reply) == 'table' and string.find(reply.err, 'equal or smaller', 1, true) and isStored(id, from, to) then
			reply = nil
		end
	end
	if id == '' or type(reply) == 'table' and string.find(reply.err, 'equal or smaller', 1, true) then
		if wasSent(from, to) then
			reply = nil
		else
			reply = readLast()
			if not reply then
				if began == '' then began = last end
				reply = add(following(last), from, to)
			end
		end
	end
	if type(reply) == 'string' then
		last, wrote = reply, true
	elseif reply ~= nil then -- false: the stream does not exist
		failure = reply and reply.err or 'NOSTREAM'
		break
	end
	stored = stored + 1
	at = to + 1
end
if stored == 0 and failure ~= '' then return {stored, failure, '', ''} end
local unknown = readLast()
if unknown then return {stored, failure, '', began} end
if ARGV[6] == 'confirm' and not wrote then
	-- WAIT waits for the last write of its connection. The records were written on another one, so write what changes
	-- nothing and is replicated behind them.
	local touched = redis.pcall('XSETID', key, last)
	if touched.err then return {0, 'NOCONFIRM ' .. touched.err, '', ''} end
end
return {stored, failure, last, began}
