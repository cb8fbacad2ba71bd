package measure

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// What everything is called that a bench makes: its leftovers must be found, and nothing else.
const (
	objectPrefix = "outbox_cdc_bench_"
	table        = "outbox"
)

// Config is what a Workbench is made like.
type Config struct {
	Topics            int            // aggregate types; 0: 1
	Partitions        int32          // of each topic; 0: 12
	ReplicationFactor int16          // of the topics; 0: the brokers' default
	Patience          time.Duration  // how long no row may come before the rest is lost; 0: 15 s
	Keep              bool           // Close drops slots only: see [Workbench.Kept]
	Progress          func(Progress) // told now and then, from one goroutine at a time; nil: nobody
}

func (c Config) withDefaults() Config {
	c.Topics = cmp.Or(c.Topics, 1)
	c.Partitions = cmp.Or(c.Partitions, 12)
	c.ReplicationFactor = cmp.Or(c.ReplicationFactor, -1)
	c.Patience = cmp.Or(c.Patience, 15*time.Second)
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	return c
}

// Progress is how far something long has come.
type Progress struct {
	Doing       string // "write", or a contender's name
	Done, Total int    // rows
}

// A Workbench is a schema with an outbox table, a publication and destinations, made on servers that may be
// somebody's. Close removes them.
type Workbench struct {
	cfg     Config
	servers Servers
	name    string // of schema and publication, and what slots' names begin with
	prefix  string // of destinations
	slots   int    // made so far
	dust    *dust
	version string // of the database

	pool    *pgxpool.Pool
	topics  Destinations
	backlog *Backlog  // that is open; nil: none
	undo    []removal // what Close does, the last first
	kept    []Leftover
}

// A removal drops one thing.
type removal struct {
	leftover Leftover
	holdsLog bool // a slot: never kept
	drop     func(context.Context) error
}

// NewWorkbench makes a Workbench. What a server refuses is a [*ServerError]; what was made by then is
// dropped.
func NewWorkbench(ctx context.Context, servers Servers, cfg Config) (*Workbench, error) {
	suffix := strings.ToLower(rand.Text()[:8])
	w := &Workbench{
		cfg: cfg.withDefaults(), servers: servers, dust: newDust(),
		name: objectPrefix + suffix, prefix: TopicPrefix + suffix + ".",
	}
	err := w.make(ctx)
	if err != nil {
		return nil, errors.Join(err, w.Close(ctx))
	}
	return w, nil
}

func (w *Workbench) make(ctx context.Context) error {
	var err error
	if w.pool, err = w.servers.newPool(ctx, w.name); err != nil {
		return err
	}
	if err := w.pool.QueryRow(ctx, `SHOW server_version`).Scan(&w.version); err != nil {
		return postgresError("ask for the server's version", err)
	}
	if err := w.makeObjects(ctx); err != nil {
		return err
	}
	return w.openBroker(ctx)
}

// openBroker creates the destinations.
func (w *Workbench) openBroker(ctx context.Context) (err error) {
	w.topics, err = w.servers.Broker.Open(ctx, Layout{
		Prefix: w.prefix, Topics: w.cfg.Topics, Partitions: w.cfg.Partitions, ReplicationFactor: w.cfg.ReplicationFactor,
	})
	if err != nil {
		return err
	}
	w.undo = append(w.undo, removal{
		leftover: Leftover{fmt.Sprintf("destinations %s*", w.prefix), w.servers.Broker.DropCommand(w.prefix)}, drop: w.topics.Delete,
	})
	return nil
}

// Name returns the name of schema and publication, and the beginning of the slots' names.
func (w *Workbench) Name() string { return w.name }

// PostgresVersion returns the server's version as it says it.
func (w *Workbench) PostgresVersion() string { return w.version }

// Kept returns what the last Close has left, because it was to be kept.
func (w *Workbench) Kept() []Leftover { return w.kept }

// closeTimeout is for dropping everything.
const closeTimeout = 30 * time.Second

// Close drops what was made, also when ctx is done. What could not be dropped is named in the error,
// with the statement that does it.
func (w *Workbench) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var errs []error
	if w.backlog != nil {
		errs = append(errs, w.backlog.Close(ctx))
	}
	for len(w.undo) > 0 {
		last := w.undo[len(w.undo)-1]
		if w.cfg.Keep && !last.holdsLog {
			w.kept = append(w.kept, last.leftover)
		} else if err := last.drop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("drop %s: %w; by hand: %s", last.leftover.Object, err, last.leftover.Drop))
		}
		w.undo = w.undo[:len(w.undo)-1]
	}
	if w.topics != nil {
		w.topics.Close()
		w.topics = nil
	}
	if w.pool != nil {
		w.pool.Close()
		w.pool = nil
	}
	return errors.Join(errs...)
}
