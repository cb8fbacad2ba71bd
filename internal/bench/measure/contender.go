package measure

import (
	"context"
	"os/exec"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// A Contender is a program that carries rows out of a slot. Its methods are called from one goroutine.
type Contender interface {
	// Name is for people.
	Name() string
	// Start starts the program with a method of t and returns as soon as the process exists.
	Start(ctx context.Context, t Target) (*Process, error)
	// Produces reports whether records reach the topics. What does not produce must end by itself,
	// with exit status 0, when it has passed the target's End.
	Produces() bool
}

// A Target is what a contender is pointed at.
type Target struct {
	DSN           string // libpq conninfo; may be empty, if PG* variables say where
	Publication   string // of one table, inserts only
	Slot          string // logical, pgoutput; nobody else uses it
	Schema, Table string // the outbox table, of the default layout
	// End is a position in the log behind everything that is to be read; empty where there is no end.
	End string

	Brokers     []string
	Topics      []string // which exist: TopicPrefix and each aggregatetype
	TopicPrefix string   // whatever topics begin with it are deleted in the end
	ClientID    string

	dir *serverproc.Dir
}

// Dir is a directory for what the contender needs. It goes away with the process, and is private:
// secrets may be written there.
func (t Target) Dir() string { return t.dir.Path() }

// Spawn starts cmd, and keeps what it prints for error messages. The process ends with this one,
// however that ends; ctx's of this package do not end it. It may be called once.
func (t Target) Spawn(cmd *exec.Cmd) (*Process, error) { return spawn(t.dir, cmd) }
