package catalog

// MessagePrefix is the prefix of the logical messages that this program writes for itself: the
// snapshots of relays and the marks of prune. The content of a snapshot is the relay's name, a bar,
// and what pg_current_snapshot() returned; a mark has none.
const MessagePrefix = "outbox-cdc"

// earlierMarkPrefix is the prefix of the marks that prune wrote before MessagePrefix was theirs, too.
const earlierMarkPrefix = MessagePrefix + " prune"

// Reserved reports whether prefix is one of the program's own. A message with such a prefix is never
// a row, whichever relay, prune or earlier version has written it.
func Reserved(prefix string) bool { return prefix == MessagePrefix || prefix == earlierMarkPrefix }
