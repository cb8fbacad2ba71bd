package measure

import (
	"context"
	"os/exec"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// A Contender is a program that reads rows from a slot. Its methods are called from one goroutine.
type Contender interface {
	// Name returns the name in reports.
	Name() string
	// Start starts the program with t.Spawn and returns as soon as the process exists.
	Start(ctx context.Context, t Target) (*Process, error)
	// Produces reports whether the program writes records to the topics. Otherwise it must exit with
	// status 0 when it has passed the End of the target.
	Produces() bool
}

// A Target is the slot, publication and destinations for a contender.
type Target struct {
	DSN           string // libpq conninfo; may be empty, if PG* variables say where
	Publication   string // of one table, inserts only
	Slot          string // logical, pgoutput; nobody else uses it
	Schema, Table string // the outbox table, of the default layout
	// End is the WAL position at which reading ends; empty: it does not end.
	End string

	Topics      []string       // destinations, by the number of their aggregate type; nil if the contender does not produce
	TopicPrefix string         // of the destinations; with Kafka, the rest is the aggregate type
	Settings    map[string]any // the relay's configuration for the destinations
	ClientID    string

	dir  *serverproc.Dir
	plan plan // of the rows
}

// Dir returns a directory for files of the contender. It is private, so it may contain secrets, and is
// removed with the process.
func (t Target) Dir() string { return t.dir.Path() }

// Spawn starts cmd, and keeps its last output for errors. The process ends when this process ends. It may be
// called once.
func (t Target) Spawn(cmd *exec.Cmd) (*Process, error) { return spawn(t.dir, cmd) }

// spawnReader is like Spawn, for a program that gets the rows to publish from its standard input.
func (t Target) spawnReader(cmd *exec.Cmd) (*Process, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p, err := spawn(t.dir, cmd)
	if err == nil {
		p.reads = in
	}
	return p, err
}
