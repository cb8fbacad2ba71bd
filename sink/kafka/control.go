package kafka

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// control is the connection for every request but produce: metadata, topic configurations,
// topic creation, producer ids. It goes to whichever broker answers. One request at a time;
// methods may be called from any goroutine, and none of them is called by a sender.
type control struct {
	wire  *wire
	seeds []string

	turn  chan struct{} // holds a token for a whole request, so that link has one user; a mutex that a context ends
	link  *link         // nil: not connected
	known []string      // addresses the cluster has named
}

// do runs request on a connected broker. A broker that cannot be reached or does not answer
// is followed by the next; the error then holds the last cause of each address tried. An
// error wrapping sink.ErrAccess ends the tour at once, and so does the end of ctx. What the request returns as a code of the
// protocol is the caller's to read: it is no reason to ask another broker.
func (c *control) do(ctx context.Context, request func(l *link) error) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return causes{context.Cause(ctx)}
	}
	defer func() { <-c.turn }()
	var causes causes
	if c.link != nil {
		err := c.ask(ctx, request)
		if err == nil {
			return nil
		}
		causes = append(causes, err)
	}
	for _, addr := range c.addresses() {
		if ctx.Err() != nil {
			return append(causes, context.Cause(ctx))
		}
		l, err := c.wire.connect(ctx, addr, controlTimeout)
		if err == nil {
			c.link = l
			if err = c.ask(ctx, request); err == nil {
				return nil
			}
		}
		if errors.Is(err, sink.ErrAccess) {
			return err
		}
		causes = append(causes, err)
	}
	return causes
}

// ask runs request on c.link, and gives the link up if it fails.
func (c *control) ask(ctx context.Context, request func(l *link) error) error {
	c.link.conn.watch(ctx)
	err := request(c.link)
	c.link.conn.unwatch()
	if err == nil {
		return nil
	}
	err = requestError(c.link.addr, err, c.wire.sasl != nil)
	_ = c.link.Close() // broken as it is
	c.link = nil
	return err
}

// addresses returns where a broker may be found: what the cluster has named, then what was
// configured.
func (c *control) addresses() []string {
	addrs := slices.Clone(c.known)
	for _, seed := range c.seeds {
		if !slices.Contains(addrs, seed) {
			addrs = append(addrs, seed)
		}
	}
	return addrs
}

// learn replaces the addresses the cluster has named. The caller is a request.
func (c *control) learn(addrs []string) { c.known = addrs }

// move makes addr the broker that is asked next. The caller is a request.
func (c *control) move(addr string) {
	c.known = slices.Insert(slices.DeleteFunc(c.known, func(a string) bool { return a == addr }), 0, addr)
}

// close ends the connection.
func (c *control) close() {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if c.link != nil {
		_ = c.link.Close() // nothing is outstanding on it
		c.link = nil
	}
}

// causes are the errors of several brokers, one per broker.
type causes []error

func (c causes) Error() string {
	texts := make([]string, len(c))
	for i, err := range c {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (c causes) Unwrap() []error { return c }
