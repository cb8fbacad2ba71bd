package catalog

// MessagePrefix is the prefix of the program's own logical messages: snapshots of a relay and marks of
// prune. The content of a snapshot is a nonce of the process, "|" and the result of
// pg_current_snapshot(). A mark has no content; only its position matters. Any role can write messages
// with this prefix, so a relay ignores snapshots without its nonce. No message with this prefix has a row.
const MessagePrefix = "outbox-cdc"
