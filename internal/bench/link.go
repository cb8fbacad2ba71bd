package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// A link forwards connections to a broker, and can take the broker away: it then closes all connections and refuses new ones, as
// the system does for a broker that has been stopped.
type link struct {
	port *serverproc.Port // refuses connections while nobody listens
	to   string           // host:port

	mu       sync.Mutex
	listener net.Listener // nil: away
	conns    map[net.Conn]struct{}
	running  sync.WaitGroup
}

// newLink returns a link that is back.
func newLink(ctx context.Context, to string) (*link, error) {
	port, err := serverproc.ReservePort()
	if err != nil {
		return nil, err
	}
	l := &link{port: port, to: to, conns: make(map[net.Conn]struct{})}
	if err := l.back(ctx); err != nil {
		port.Close()
		return nil, err
	}
	return l, nil
}

func (l *link) addr() string { return l.port.Addr() }

// back lets connections through.
func (l *link) back(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.port.Addr())
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listener = listener
	l.running.Go(func() { l.accept(context.WithoutCancel(ctx), listener) })
	return nil
}

// away closes every connection and refuses new ones.
func (l *link) away(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener == nil {
		return nil
	}
	err := l.listener.Close()
	l.listener = nil
	for conn := range l.conns {
		_ = conn.Close()
	}
	return err
}

// stop takes the broker away for good.
func (l *link) stop(ctx context.Context) error {
	err := l.away(ctx)
	l.running.Wait()
	l.port.Close()
	return err
}

func (l *link) accept(ctx context.Context, from net.Listener) {
	for {
		conn, err := from.Accept()
		if err != nil {
			return // away
		}
		l.running.Go(func() { l.forward(ctx, conn) })
	}
}

func (l *link) forward(ctx context.Context, client net.Conn) {
	broker, err := new(net.Dialer).DialContext(ctx, "tcp", l.to)
	if err != nil {
		_ = client.Close()
		return
	}
	if !l.open(client, broker) {
		return
	}
	var copying sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{client: broker, broker: client} {
		copying.Go(func() {
			_, _ = io.Copy(to, from)
			_ = errors.Join(to.Close(), from.Close())
		})
	}
	copying.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, client)
	delete(l.conns, broker)
}

// open enters the two ends of a connection. It closes them and returns false if the broker is away.
func (l *link) open(ends ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range ends {
		if l.listener == nil {
			_ = conn.Close()
			continue
		}
		l.conns[conn] = struct{}{}
	}
	return l.listener != nil
}
