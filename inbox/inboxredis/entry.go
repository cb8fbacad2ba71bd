package inboxredis

// An entry is an entry of a stream: names and values of its fields in turn. A map, as go-redis has it, would lose the order
// of the fields and those with the same name.
type entry struct {
	id     string
	fields []string
}

// newEntries returns the entries of a reply of XREADGROUP for one stream.
func newEntries(reply any) []entry {
	streams, _ := reply.([]any)
	if len(streams) == 0 {
		return nil
	}
	stream, _ := streams[0].([]any)
	if len(stream) != 2 {
		return nil
	}
	return parseEntries(stream[1])
}

// A claimed is a reply of XAUTOCLAIM.
type claimed struct {
	next    string // id to continue with
	entries []entry
	deleted int // pending entries that the stream does not have any more
}

func parseClaim(reply any) claimed {
	var c claimed
	parts, _ := reply.([]any)
	if len(parts) < 2 {
		return c
	}
	c.next, _ = parts[0].(string)
	c.entries = parseEntries(parts[1])
	all, _ := parts[1].([]any)
	c.deleted = len(all) - len(c.entries) // Redis 6.2 has null for them
	if len(parts) > 2 {
		ids, _ := parts[2].([]any)
		c.deleted += len(ids)
	}
	return c
}

func parseEntries(reply any) []entry {
	all, _ := reply.([]any)
	entries := make([]entry, 0, len(all))
	for _, one := range all {
		pair, _ := one.([]any)
		if len(pair) != 2 {
			continue
		}
		var e entry
		e.id, _ = pair[0].(string)
		fields, ok := pair[1].([]any)
		if !ok { // of an entry that was deleted
			continue
		}
		for _, f := range fields {
			text, _ := f.(string)
			e.fields = append(e.fields, text)
		}
		entries = append(entries, e)
	}
	return entries
}
