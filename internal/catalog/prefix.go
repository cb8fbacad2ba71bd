package catalog

import "slices"

// MessagePrefix is the prefix of the program's own logical messages: snapshots of a relay and marks of
// prune. The content of a snapshot is a nonce of the process, "|" and the result of
// pg_current_snapshot(). A mark has no content; only its position matters. Any role can write messages
// with this prefix, so a relay ignores snapshots without its nonce.
const MessagePrefix = "outbox-cdc"

// earlierMarkPrefix is the prefix of the marks of earlier versions of prune.
const earlierMarkPrefix = MessagePrefix + " prune"

// Reserved reports whether prefix is one of the program's own. A message with such a prefix never has a
// row, in any version.
func Reserved(prefix string) bool { return slices.Contains(ReservedPrefixes(), prefix) }

// ReservedPrefixes returns the prefixes for which Reserved is true.
func ReservedPrefixes() []string { return []string{MessagePrefix, earlierMarkPrefix} }
