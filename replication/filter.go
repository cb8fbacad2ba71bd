package replication

import (
	"bytes"
	"log/slog"
	"slices"
)

// MaxOwnMessage limits the messages with [Config.MessagePrefix] that Run returns, in bytes. The size of
// a message is 14 bytes, the prefix and the content.
const MaxOwnMessage = 80 << 10

// A messageFilter decides which logical messages Run returns. Every role that can connect to the
// database can write messages of any prefix and size, transactional or not.
type messageFilter struct {
	own      []byte   // Config.MessagePrefix; nil: none
	reserved []byte   // Config.ReservedPrefix; nil: none
	rows     [][]byte // Config.Messages
}

// messageFilter returns the filter for cfg. Its prefixes include the NUL that ends them in the stream.
func (cfg Config) messageFilter() messageFilter {
	var f messageFilter
	if cfg.MessagePrefix != "" {
		f.own = terminated(cfg.MessagePrefix)
	}
	if cfg.ReservedPrefix != "" {
		f.reserved = terminated(cfg.ReservedPrefix)
	}
	for _, prefix := range cfg.Messages {
		if prefix == AnyPrefix {
			f.rows = [][]byte{{}} // a prefix of every message
			break
		}
		f.rows = append(f.rows, terminated(prefix))
	}
	return f
}

func terminated(prefix string) []byte { return []byte(prefix + "\x00") }

// wantsAny reports whether START_REPLICATION must request logical messages.
func (f *messageFilter) wantsAny() bool { return f.own != nil || len(f.rows) > 0 }

// longest returns the length of the longest prefix that discards compares with.
func (f *messageFilter) longest() int {
	n := max(len(f.own), len(f.reserved))
	for _, prefix := range f.rows {
		n = max(n, len(prefix))
	}
	return n
}

// messageHeaderSize is the size of a logical message before its prefix: type, flags, LSN.
const messageHeaderSize = 1 + 1 + 8

// discards reports whether data is a logical message that Run drops, and whether the reason is that its prefix is none of
// Config.Messages. data may be the beginning of the message only; size is its full size.
func (f *messageFilter) discards(data []byte, size int) (drops, foreign bool) {
	if len(data) < messageHeaderSize || data[0] != 'M' {
		return false, false
	}
	transactional, prefix := data[1] != 0, data[messageHeaderSize:]
	begins := func(with []byte) bool { return bytes.HasPrefix(prefix, with) }
	switch {
	case f.own != nil && begins(f.own):
		return !transactional || size > MaxOwnMessage, false
	case f.reserved != nil && begins(f.reserved):
		return true, false
	case slices.ContainsFunc(f.rows, begins):
		return false, false
	}
	return true, len(f.rows) > 0
}

// maxLogged limits what is logged of a prefix, in bytes.
const maxLogged = 100

// discards is that of the filter. It logs the first message of a session whose prefix is none of Config.Messages, because that may
// be a mistake.
func (r *run) discards(data []byte, size int) bool {
	drops, foreign := r.filter.discards(data, size)
	if foreign && !r.foreign {
		r.foreign = true
		prefix, _, _ := bytes.Cut(data[messageHeaderSize:], []byte{0})
		prefix = prefix[:min(len(prefix), maxLogged)]
		r.log.Info("skipping logical messages with other prefixes than those of outbox.messages", slog.String("first", string(prefix)))
	}
	return drops
}
