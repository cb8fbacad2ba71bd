package soak

import (
	"bytes"
	"sync"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/test/kit/walproxy"
)

// A wireState is what a mutation knows of what has passed.
type wireState struct {
	mu        sync.Mutex
	end       pglogrepl.LSN // of the last Commit
	keepalive pglogrepl.LSN // the last one
	confirmed pglogrepl.LSN // by the relay, last
	skip      bool          // the transaction being streamed
}

// watch notes what the server sends.
func (w *wireState) watch(body []byte) walproxy.WALMessage {
	m := walproxy.ParseWAL(body)
	switch {
	case m.Kind == 'C':
		w.end = m.EndLSN
	case body[0] == 'k':
		w.keepalive, _ = walproxy.ParseKeepalive(body)
	}
	return m
}

// confirming makes the relay confirm what position returns, which is given what it would.
func confirming(position func(w *wireState, own pglogrepl.LSN) pglogrepl.LSN) func(*wireState) walproxy.Tamper {
	return func(w *wireState) walproxy.Tamper {
		return walproxy.Tamper{
			FromServer: func(kind byte, body []byte, pass func([]byte)) {
				w.mu.Lock()
				if kind == 'd' {
					w.watch(body)
				}
				w.mu.Unlock()
				pass(body)
			},
			FromRelay: func(kind byte, body []byte, pass func([]byte)) {
				w.mu.Lock()
				if own, ok := walproxy.ParseStatus(body); kind == 'd' && ok && own != 0 {
					walproxy.PutStatus(body, position(w, own))
				}
				w.mu.Unlock()
				pass(body)
			},
		}
	}
}

// skipping hides from the relay each transaction that it would skip if it compared with
// less or equal where it has to be less.
func (w *wireState) skipping() walproxy.Tamper {
	return walproxy.Tamper{
		FromServer: func(kind byte, body []byte, pass func([]byte)) {
			if kind != 'd' || !w.skips(body) {
				pass(body)
			}
		},
		FromRelay: func(kind byte, body []byte, pass func([]byte)) {
			w.mu.Lock()
			if flush, ok := walproxy.ParseStatus(body); kind == 'd' && ok {
				w.confirmed = max(w.confirmed, flush)
			}
			w.mu.Unlock()
			pass(body)
		},
	}
}

// skips reports whether the message is of a transaction that is skipped. What describes a
// relation is not.
func (w *wireState) skips(body []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.watch(body)
	if m.Kind == 'B' {
		w.skip = m.CommitLSN <= w.confirmed
	}
	return w.skip && bytes.ContainsRune([]byte("BIC"), rune(m.Kind))
}

// deaf hides notices. https://www.postgresql.org/docs/current/protocol-message-formats.html
func deaf(*wireState) walproxy.Tamper {
	return walproxy.Tamper{FromServer: func(kind byte, body []byte, pass func([]byte)) {
		if kind != 'N' {
			pass(body)
		}
	}}
}
