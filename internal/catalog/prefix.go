package catalog

import "slices"

// MessagePrefix is the prefix of the program's own logical messages: snapshots of relays and marks of
// prune. The content of a snapshot is a nonce of the process, a bar, and what pg_current_snapshot()
// returned; a mark has none. Any role can write messages with this prefix: nothing is believed without
// the nonce, and a mark says nothing but where it is.
const MessagePrefix = "outbox-cdc"

// earlierMarkPrefix is the prefix of the marks that earlier versions of prune write.
const earlierMarkPrefix = MessagePrefix + " prune"

// Reserved reports whether prefix is one of the program's own. A message with such a prefix is never
// a row, whichever version wrote it.
func Reserved(prefix string) bool { return slices.Contains(ReservedPrefixes(), prefix) }

// ReservedPrefixes returns the prefixes that are Reserved.
func ReservedPrefixes() []string { return []string{MessagePrefix, earlierMarkPrefix} }
