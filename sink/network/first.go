package network

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// nextServerAfter is how long a server may take to respond until a connection to the next one is attempted as well.
const nextServerAfter = time.Second

// First calls connect for each of the servers of a cluster, beginning with that of index start, until one has responded. It
// returns that connection and the index of its server; those that are made later are released. If no server responds, the error
// has that of each one, and wraps [sink.ErrAccess] only if all of them reject us. First returns when ctx ends.
func First[C any](ctx context.Context, servers []string, start int, connect func(ctx context.Context, server string) (C, error), release func(C)) (C, int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type attempt struct {
		conn   C
		server int
		err    error
	}
	ended := make(chan attempt, len(servers))
	next := time.NewTicker(nextServerAfter)
	defer next.Stop()
	var failed serverErrors
	for started := 0; len(failed) < len(servers); {
		if started < len(servers) {
			i := (start + started) % len(servers)
			started++
			go func() { // ends with ctx
				c, err := connect(ctx, servers[i])
				ended <- attempt{c, i, err}
			}()
		}
		select {
		case a := <-ended:
			if a.err != nil {
				failed = append(failed, a.err)
				continue
			}
			go func() {
				for range started - len(failed) - 1 {
					if late := <-ended; late.err == nil {
						release(late.conn)
					}
				}
			}()
			return a.conn, a.server, nil
		case <-next.C:
		}
	}
	var none C
	return none, 0, failed
}

// serverErrors are the errors of all servers.
type serverErrors []error

// Error returns the texts, separated by semicolons.
func (e serverErrors) Error() string {
	var texts []string
	for _, err := range e {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors, without those of servers that reject us if another one may accept us.
func (e serverErrors) Unwrap() []error {
	var others []error
	for _, err := range e {
		if !errors.Is(err, sink.ErrAccess) {
			others = append(others, err)
		}
	}
	if len(others) == 0 {
		return e
	}
	return others
}
