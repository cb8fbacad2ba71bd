package refill

import (
	"errors"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

var (
	// ErrCopyUnfinished means that an earlier start has created the slot, but has not delivered the whole copy.
	ErrCopyUnfinished = errors.New("the initial copy of an earlier start is not finished")

	// ErrUnfinished means that a refill was interrupted, and this start must not send anything else before it.
	ErrUnfinished = errors.New("the refill of a lost slot is not finished")

	// ErrNothingLost says that the slot continues at the position record, and has every row after it.
	ErrNothingLost = errors.New("nothing to recover: the slot continues at the position record")
)

// Config configures a Planner.
type Config struct {
	Name      string // of the relay, in errors
	Source    replication.Config
	Route     encode.Config
	Tables    []string // the outbox tables, written as in SQL
	Messages  []string // prefixes of the logical messages that have rows
	Positions position.Place
	Timeout   time.Duration // limits each contact with the source

	InitialCopy bool
	Where       string        // SQL condition for the rows of the initial copy; empty: all rows
	SkipTo      pglogrepl.LSN // not 0: the slot is taken over from another program
	Failover    bool          // create a failover slot

	OnLoss bool // refill a lost slot
	Assume catalog.Assumptions
}

func (cfg Config) rows() rows.Config {
	return rows.Config{Source: cfg.Source, Route: cfg.Route, Timeout: cfg.Timeout}
}
