package replication

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// promptRequests is how many prompt requests in a row mean that the server is stopping.
const promptRequests = 3

// stopping recognises a server that wants to shut down. It does not say so: it waits until
// everything it has sent is confirmed, and asks for a reply again as soon as it has got
// one. A server that only wants to know whether we live asks after half of its
// wal_sender_timeout has passed without a word from us.
// https://www.postgresql.org/docs/current/protocol-replication.html
type stopping struct {
	prompt time.Duration // less than this after our last status update is prompt

	walEnd   pglogrepl.LSN // of the last request
	asked    time.Time     // when that came
	requests int           // prompt ones in a row, nothing having been sent in between
	since    time.Time     // when it was recognised; zero: it is not
	certain  bool          // the server has said so
}

// data notes that the server still has something to send.
func (s *stopping) data() {
	s.requests = 0
	if !s.certain {
		s.since = time.Time{}
	}
}

// keepalive notes one, which arrived now, and reports whether it gives the server away;
// sent is when our last status update was.
func (s *stopping) keepalive(k Keepalive, now, sent time.Time) bool {
	if k.WALEnd != s.walEnd {
		s.data()
		s.walEnd = k.WALEnd
	}
	if !k.replyRequested {
		return false
	}
	if now.Sub(sent) >= s.prompt || now.Sub(s.asked) >= s.prompt {
		s.data()
	}
	s.asked = now
	if now.Sub(sent) < s.prompt {
		s.requests++
	}
	return s.requests == promptRequests
}

// recognised reports whether the server is stopping, and since when that is known.
func (s *stopping) recognised() (since time.Time, ok bool) { return s.since, !s.since.IsZero() }
