package replication

import (
	"bytes"
	"slices"
)

// MaxOwnMessage is the size in bytes of the largest message with [Config.MessagePrefix] that is handed
// on, in the protocol's form: 14 bytes, the prefix and the content.
const MaxOwnMessage = 80 << 10

// A messageFilter decides which logical messages are handed on. Anybody who may connect to the database
// can write one with any prefix, any size, inside a transaction or outside.
type messageFilter struct {
	own      []byte   // the prefix of the relay's own; nil: none are wanted
	reserved [][]byte // prefixes of which no other is handed on
	rows     [][]byte // prefixes of those that hold rows
}

// messageFilter returns the filter that cfg describes. Each prefix has the NUL that ends it in the stream.
func (cfg Config) messageFilter() messageFilter {
	var f messageFilter
	if cfg.MessagePrefix != "" {
		f.own = terminated(cfg.MessagePrefix)
	}
	for _, prefix := range cfg.ReservedPrefixes {
		f.reserved = append(f.reserved, terminated(prefix))
	}
	for _, prefix := range cfg.Messages {
		if prefix == AnyPrefix {
			f.rows = [][]byte{{}} // with which everything begins
			break
		}
		f.rows = append(f.rows, terminated(prefix))
	}
	return f
}

func terminated(prefix string) []byte { return []byte(prefix + "\x00") }

// wantsAny reports whether the server is asked for logical messages at all.
func (f *messageFilter) wantsAny() bool { return f.own != nil || len(f.rows) > 0 }

// longest returns the length of the longest prefix that discards compares with.
func (f *messageFilter) longest() int {
	n := len(f.own)
	for _, prefix := range slices.Concat(f.reserved, f.rows) {
		n = max(n, len(prefix))
	}
	return n
}

// messageHeaderSize is what precedes the prefix of a logical message: type, flags, LSN.
const messageHeaderSize = 1 + 1 + 8

// discards reports whether data is a logical message that is not handed on. The first bytes of data
// are enough; size is how many it has in all.
func (f *messageFilter) discards(data []byte, size int) bool {
	if len(data) < messageHeaderSize || data[0] != 'M' {
		return false
	}
	transactional, prefix := data[1] != 0, data[messageHeaderSize:]
	begins := func(with []byte) bool { return bytes.HasPrefix(prefix, with) }
	switch {
	case f.own != nil && begins(f.own):
		return !transactional || size > MaxOwnMessage
	case slices.ContainsFunc(f.reserved, begins):
		return true
	}
	return !slices.ContainsFunc(f.rows, begins)
}
