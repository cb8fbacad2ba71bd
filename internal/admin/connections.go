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

// maxConnections is the maximum number of open connections. A browser needs six, a probe or a scrape one. More would take
// memory and file descriptors from the relay.
const maxConnections = 64

// connections limits the connections of a server to maxConnections. For a new connection it closes the one that has been
// idle for the longest time, so that probes get a response even if another client opens many connections. changed is
// the ConnState of an [http.Server].
type connections struct {
	log *slog.Logger

	mu     sync.Mutex
	open   map[net.Conn]connection
	filled bool // the limit has been reached and logged
}

// A connection is a connection and its state.
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
	case known: // otherwise closeOne has closed it
		c.open[conn] = connection{conn, state, time.Now()}
	}
}

// rank is higher for connections with a request. A connection whose header is being read is new or idle.
func rank(state http.ConnState) int {
	if state == http.StateActive {
		return 1
	}
	return 0
}

// closeOne closes the connection that has been idle for longest. If none is idle, it closes the one with the oldest
// request, whose client does not read the response.
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
