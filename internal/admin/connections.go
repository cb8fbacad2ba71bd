package admin

import (
	"cmp"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxConnections is how many connections the server has open. A browser needs six, a probe or a scrape
// one. What others open beyond that would take memory and files from the source and the sink.
const maxConnections = 64

// connections keeps those of a server below maxConnections: for a new one it closes the one that has
// been without a request for the longest time. So a probe gets its answer while somebody else fills the
// port. changed is the ConnState of an [http.Server].
type connections struct {
	log *slog.Logger

	mu     sync.Mutex
	open   map[net.Conn]connection
	filled bool // and the log has it
}

// A connection is in a state since then.
type connection struct {
	conn  net.Conn
	state http.ConnState
	since time.Time
}

// changed is called before anything is read from a new connection.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.open[conn]
	switch {
	case state == http.StateClosed:
		delete(c.open, conn)
	case state == http.StateNew:
		if len(c.open) >= maxConnections {
			c.closeOne()
		}
		fallthrough
	case known: // else it was closed for another one
		c.open[conn] = connection{conn, state, time.Now()}
	}
}

// rank sorts connections whose request is answered last. While a header is read the connection is new or idle.
func rank(state http.ConnState) int {
	if state == http.StateActive {
		return 1
	}
	return 0
}

// closeOne closes one without a request, if there is any, else the one whose request takes longest:
// its client does not read the answer.
func (c *connections) closeOne() {
	oldest := slices.MinFunc(slices.Collect(maps.Values(c.open)), func(a, b connection) int {
		return cmp.Or(cmp.Compare(rank(a.state), rank(b.state)), a.since.Compare(b.since))
	})
	delete(c.open, oldest.conn)
	_ = oldest.conn.Close()
	if !c.filled {
		c.filled = true
		c.log.Warn("admin server has as many connections as it may, idle ones are closed", slog.Int("connections", maxConnections))
	}
}
