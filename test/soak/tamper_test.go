package soak

import (
	"bytes"
	"fmt"
	"slices"
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
	walEnd    string        // IDENTIFY_SYSTEM's xlogpos
	skip      bool          // the transaction being streamed
	rows      int

	open    *storing
	storing []*storing          // in order
	byRow   map[string]*storing // by what is in the payload
}

// A storing is a transaction whose rows are being stored.
type storing struct {
	end  pglogrepl.LSN // 0: not all of it was streamed
	left int
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
					w.note(w.watch(body), body)
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

// note keeps, for highestStored, which rows make a transaction.
func (w *wireState) note(m walproxy.WALMessage, body []byte) {
	switch m.Kind {
	case 'B':
		w.open = &storing{}
		w.storing = append(w.storing, w.open)
	case 'I':
		if e, ok := FindEvent(body, soakRun); ok {
			w.byRow[e.ID().String()] = w.open
			w.open.left++
		}
	case 'C':
		w.open.end = m.EndLSN
	}
}

// stored is called with each record of the topic.
func (w *wireState) stored(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := e.ID().String()
	if tx := w.byRow[id]; tx != nil {
		tx.left--
		delete(w.byRow, id)
	}
}

func (w *wireState) highestStored() (end pglogrepl.LSN) {
	for i, tx := range slices.Backward(w.storing) {
		if tx.left == 0 && tx.end != 0 {
			w.storing = w.storing[i:]
			return tx.end
		}
	}
	return 0
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

// startingAtEnd makes the relay stream from where the server's log ended.
func (w *wireState) startingAtEnd() walproxy.Tamper {
	return walproxy.Tamper{
		FromServer: func(kind byte, body []byte, pass func([]byte)) {
			if kind == 'D' {
				w.identified(body)
			}
			pass(body)
		},
		FromRelay: func(kind byte, body []byte, pass func([]byte)) {
			w.mu.Lock()
			before, rest, ok := bytes.Cut(body, []byte(" LOGICAL "))
			if kind == 'Q' && ok && bytes.HasPrefix(body, []byte("START_REPLICATION")) && w.walEnd != "" {
				_, options, _ := bytes.Cut(rest, []byte(" "))
				body = fmt.Appendf(nil, "%s LOGICAL %s %s", before, w.walEnd, options)
			}
			w.mu.Unlock()
			pass(body)
		},
	}
}

// identified keeps the position of IDENTIFY_SYSTEM's row: system, timeline, position,
// database.
func (w *wireState) identified(row []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for field := range bytes.FieldsFuncSeq(row, func(r rune) bool { return r < ' ' }) {
		if _, err := pglogrepl.ParseLSN(string(field)); err == nil && bytes.Contains(field, []byte("/")) {
			w.walEnd = string(field)
		}
	}
}

// someRows does f with one row in a thousand, and nothing with all else.
func (w *wireState) someRows(f func(body []byte, pass func([]byte))) walproxy.Tamper {
	return walproxy.Tamper{FromServer: func(kind byte, body []byte, pass func([]byte)) {
		if kind == 'd' && w.thousandth(body) {
			f(body, pass)
		} else {
			pass(body)
		}
	}}
}

func (w *wireState) losing() walproxy.Tamper {
	return w.someRows(func([]byte, func([]byte)) {})
}

func (w *wireState) repeating() walproxy.Tamper {
	return w.someRows(func(body []byte, pass func([]byte)) {
		pass(body)
		pass(body)
	})
}

func (w *wireState) altering() walproxy.Tamper {
	return w.someRows(func(body []byte, pass func([]byte)) {
		if i := bytes.Index(body, []byte(`"`+soakRun+`|`)); i > 0 {
			body[i+len(soakRun)+4]++
		}
		pass(body)
	})
}

func (w *wireState) thousandth(body []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watch(body).Kind != 'I' {
		return false
	}
	w.rows++
	return w.rows%1000 == 0
}

// deaf hides notices. https://www.postgresql.org/docs/current/protocol-message-formats.html
func deaf(*wireState) walproxy.Tamper {
	return walproxy.Tamper{FromServer: func(kind byte, body []byte, pass func([]byte)) {
		if kind != 'N' {
			pass(body)
		}
	}}
}
