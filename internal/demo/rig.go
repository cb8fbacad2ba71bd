package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

// names are the names of the objects that the demo creates on servers, which others may use too.
type names struct {
	object string // of schema, publication, slot, stream and queue
	prefix string // of destinations
}

func newNames(opts Options) names {
	suffix := strings.ToLower(rand.Text()[:6])
	n := names{object: "outbox_cdc_demo_" + suffix, prefix: "outbox.event."}
	if len(opts.Brokers) > 0 {
		n.prefix = "outbox-cdc-demo-" + suffix + "."
	}
	return n
}

func (n names) table() string { return n.object + ".outbox" }

// A rig is the environment of the demo: a database with tables and a slot, and a broker with destinations.
type rig struct {
	opts   Options
	kind   kind
	screen *screen
	names  names
	log    *slog.Logger

	source   *pgconn.Config
	relay    *pgconn.Config    // the same database with the relay's role
	proxy    *faultproxy.Proxy // between relays of other processes and the private server; nil: none
	relayDSN string            // for relays of other processes
	pool     *pgxpool.Pool
	broker   *broker

	pruned atomic.Int64 // rows deleted from the outbox
	undo   []func(context.Context) error
}

// later makes tearDown call f, before the functions of earlier calls.
func (r *rig) later(f func(context.Context) error) { r.undo = append(r.undo, f) }

// laterAt is later if the object is on a server that others may use. On a private server it disappears with the server.
func (r *rig) laterAt(somebodys bool, f func(context.Context) error) {
	if somebodys {
		r.later(f)
	}
}

// closing adapts f to later.
func closing(f func()) func(context.Context) error {
	return func(context.Context) error {
		f()
		return nil
	}
}

const (
	clientID      = "outbox-cdc-demo"
	relayClientID = "outbox-cdc-demo-relay"
	relayRole     = "cdc"

	contactTimeout  = 10 * time.Second // for the first response of a server
	tearDownTimeout = 30 * time.Second
)

// tearDown removes what setUp has created, also if it failed.
func (r *rig) tearDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tearDownTimeout)
	defer cancel()
	var errs []error
	for len(r.undo) > 0 {
		last := len(r.undo) - 1
		errs = append(errs, r.undo[last](ctx))
		r.undo = r.undo[:last]
	}
	return errors.Join(errs...)
}

func (r *rig) setUp(ctx context.Context) error {
	for _, s := range []struct {
		what string
		do   func(ctx context.Context, report func(string)) (string, error)
	}{
		{"Postgres", r.database},
		{r.kind.title, r.openBroker},
		{"tables", r.tables},
		{"slot", r.slot},
	} {
		err := r.screen.step(s.what, func(report func(string)) (string, error) { return s.do(ctx, report) })
		if err != nil {
			return fmt.Errorf("set up %s: %w", s.what, err)
		}
	}
	return nil
}

// database starts the private server, or connects to that of Options.DSN.
func (r *rig) database(ctx context.Context, report func(string)) (string, error) {
	dsn := r.opts.DSN
	if dsn == "" {
		begun := time.Now()
		srv, err := pgserver.Start(ctx, pgserver.Config{
			Settings: map[string]string{"max_wal_size": "128MB", "min_wal_size": "32MB"}, // for a small disk
			Progress: func(p pgserver.Progress) { report(download(p, time.Since(begun))) },
		})
		if err != nil {
			return "", err
		}
		r.later(srv.Stop)
		dsn = srv.DSN("postgres")
		if err := r.proxyTo(srv.Addr()); err != nil {
			return "", err
		}
	} else {
		r.relayDSN = dsn
	}
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return "", err
	}
	r.source = cfg.ConnConfig.Config.Copy()
	cfg.ConnConfig.RuntimeParams["search_path"] = r.names.object
	cfg.MaxConns = shopWorkers + 2 // one for the panel, one to prune
	if r.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return "", err
	}
	r.later(closing(r.pool.Close))
	limited, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	var version string
	if err := r.pool.QueryRow(limited, `SHOW server_version`).Scan(&version); err != nil {
		return "", err
	}
	version, _, _ = strings.Cut(version, " ") // without the suffix of the distribution
	address := net.JoinHostPort(cfg.ConnConfig.Host, strconv.Itoa(int(cfg.ConnConfig.Port)))
	if r.opts.DSN != "" {
		return fmt.Sprintf("%s, database %s on %s", version, cfg.ConnConfig.Database, address), nil
	}
	return fmt.Sprintf("%s, a private server on %s", version, address), nil
}

// proxyTo starts the proxy to the private server, if connections are to be cut.
func (r *rig) proxyTo(server string) (err error) {
	if !r.opts.Chaos {
		return nil
	}
	if r.proxy, err = r.newProxy("Postgres", server); err != nil {
		return err
	}
	dsn := url.URL{Scheme: "postgres", User: url.User(relayRole), Host: r.proxy.Addr(), Path: "/postgres", RawQuery: "sslmode=disable"}
	r.relayDSN = dsn.String()
	return nil
}

// newProxy starts a proxy that can cut connections.
func (r *rig) newProxy(name, target string) (*faultproxy.Proxy, error) {
	p, err := faultproxy.Launch(name, target, func(err error) { r.log.Error("proxy", slog.String("of", name), slog.Any("err", err)) })
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	r.later(closing(p.Close))
	return p, nil
}

// download describes the progress of a download.
func download(p pgserver.Progress, passed time.Duration) string {
	switch {
	case p.Unpacking:
		return "downloaded, unpacking"
	case p.Total == 0 || p.Bytes == 0:
		return "downloading (only once)"
	}
	done := float64(p.Bytes) / float64(p.Total)
	rest := time.Duration(float64(passed) * (1 - done) / done).Round(time.Second)
	return fmt.Sprintf("downloading %s %s of %s, %s/s, %s left", terminal.Bar(done, 12),
		size(p.Bytes), size(p.Total), size(int64(float64(p.Bytes)/passed.Seconds())), rest)
}

// openBroker starts the broker, or connects to Options.Brokers.
func (r *rig) openBroker(ctx context.Context, _ func(string)) (details string, err error) {
	r.broker, err = r.kind.open(ctx, r)
	if err != nil {
		return "", err
	}
	return r.broker.details, nil
}

// unreachable wraps the error of the first request to a broker.
func unreachable(b *broker, err error) error {
	return fmt.Errorf("%w: %s: %w", sink.ErrUnreachable, strings.Join(b.addrs, ", "), err)
}

// errNotInstalled is the error for a server that the demo would start.
var errNotInstalled = errors.New("not installed")

// notInstalled returns the error about a program, with what to do about it.
func notInstalled(program string, k kind, port string) error {
	return fmt.Errorf("%s is %w: install it (sudo apt install %s, or brew install %s), or use a running server with --sink %s --brokers localhost:%s",
		program, errNotInstalled, program, strings.TrimSuffix(program, "-server"), k.name, port)
}

// tables creates a schema with the outbox and the tables of the order service.
func (r *rig) tables(ctx context.Context, _ func(string)) (string, error) {
	schema := pgx.Identifier{r.names.object}.Sanitize()
	if _, err := r.pool.Exec(ctx, `CREATE SCHEMA `+schema); err != nil {
		return "", err
	}
	r.laterAt(r.opts.DSN != "", func(ctx context.Context) error {
		if _, err := r.pool.Exec(ctx, `SET client_min_messages = warning; DROP SCHEMA `+schema+` CASCADE`); err != nil {
			return fmt.Errorf("drop schema %s: %w", r.names.object, err)
		}
		return nil
	})
	db := stdlib.OpenDBFromPool(r.pool)
	defer func() { _ = db.Close() }()
	if _, err := migrations.Up(ctx, db, migrations.Config{Table: r.names.table()}); err != nil {
		return "", err
	}
	if _, err := r.pool.Exec(ctx, shopSchema); err != nil {
		return "", err
	}
	return "outbox, orders, customers", nil
}

// slot creates the publication and the slot.
func (r *rig) slot(ctx context.Context, _ func(string)) (string, error) {
	cfg := catalog.SetupConfig{
		Conn: r.source, Publication: r.names.object, Slot: r.names.object, Tables: []string{r.names.table()},
	}
	r.laterAt(r.opts.DSN != "", func(ctx context.Context) error { // even after an error: the publication may exist
		_, err := catalog.Drop(ctx, cfg)
		return err
	})
	steps, err := catalog.Setup(ctx, cfg)
	if err != nil {
		return "", err
	}
	r.relay = r.source
	if r.opts.DSN == "" { // on the private server the relay uses the role that it should have everywhere
		if _, err := r.pool.Exec(ctx, `CREATE ROLE `+relayRole+` LOGIN REPLICATION`); err != nil {
			return "", err
		}
		r.relay = r.source.Copy()
		r.relay.User = relayRole
	}
	return fmt.Sprintf("%s at %s", r.names.object, steps[len(steps)-1].LSN), nil
}

func (r *rig) relayConfig() relay.Config {
	return relay.Config{
		Name: "demo", Tables: []string{r.names.table()},
		Source: replication.Config{
			Conn: r.relay, Publication: r.names.object, Slot: r.names.object,
		},
		Route: encode.Config{Names: r.broker.names, Columns: encode.DefaultColumns(), Topic: r.broker.topic},
		Sink:  r.broker.sink,
	}
}

// prune deletes old delivered rows and orders, to limit the size of a long demo. It ignores errors: the next transaction
// or the final count reports them.
func (r *rig) prune(ctx context.Context) {
	tag, err := r.pool.Exec(ctx, `DELETE FROM outbox WHERE created_at < now() - interval '1 minute'`)
	if err != nil {
		return
	}
	r.pruned.Add(tag.RowsAffected())
	_, _ = r.pool.Exec(ctx, `DELETE FROM orders WHERE status = 'Delivered'`)
}

// committedRows returns the number of rows that were committed to the outbox, by the database.
func (r *rig) committedRows(ctx context.Context) (int, error) {
	var rows int
	err := r.pool.QueryRow(ctx, `SELECT count(*) FROM outbox`).Scan(&rows)
	return rows + int(r.pruned.Load()), err
}
