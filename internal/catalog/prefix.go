package catalog

// MessagePrefix is the prefix of the program's own logical messages: snapshots of relays and marks of
// prune. The content of a snapshot is the relay's name, a bar,
// and what pg_current_snapshot() returned; a mark has none.
const MessagePrefix = "outbox-cdc"

// earlierMarkPrefix is the prefix of the marks that earlier versions of prune write.
const earlierMarkPrefix = MessagePrefix + " prune"

// Reserved reports whether prefix is one of the program's own. A message with such a prefix is never
// a row, whichever version wrote it.
func Reserved(prefix string) bool { return prefix == MessagePrefix || prefix == earlierMarkPrefix }
