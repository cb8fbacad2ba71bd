package measure

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// A Library is a program that publishes the rows with the client library of the broker. It reads neither the slot nor the
// table: it knows every row, and learns which ones to publish from its standard input. So it is what the broker, the library
// and the consumer can do together.
type Library struct {
	// Command returns the program's command line. It must call [Publish] with dir, which has the file outbox-cdc.yaml with
	// the broker's settings.
	Command func(dir string) *exec.Cmd

	Settings map[string]any // as [Relay].Settings
}

// LibraryName is the name of a Library.
const LibraryName = "client-library"

var _ Contender = Library{}

// Name returns LibraryName.
func (Library) Name() string { return LibraryName }

// Produces returns true.
func (Library) Produces() bool { return true }

const (
	rowsFile = "rows.json"
	dustFile = "dust"
)

// rowsToPublish are the content of rowsFile.
type rowsToPublish struct {
	Rows, Keys, Payload int
	Topics              []string
}

// Start starts the program.
func (l Library) Start(_ context.Context, t Target) (*Process, error) {
	if _, err := t.configure(l.Settings); err != nil {
		return nil, err
	}
	text, err := json.Marshal(rowsToPublish{t.plan.rows, t.plan.keys, t.plan.payload, t.Topics})
	if err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{rowsFile: text, dustFile: t.plan.raw} {
		if err := os.WriteFile(filepath.Join(t.Dir(), name), content, 0o600); err != nil {
			return nil, err
		}
	}
	return t.spawnReader(l.Command(t.Dir()))
}

// Publish is what the program of a [Library] does: it publishes the rows that in names, a line for each range. It returns
// when in has ended and everything is acknowledged, or without an error when ctx is done.
func Publish(ctx context.Context, dir string, in io.Reader, to Producer) error {
	rows, err := readRows(dir)
	if err != nil {
		return err
	}
	ranges, failed := make(chan [2]int, chunk), make(chan error, 1)
	go func() { // it ends with in, at the latest with the process
		defer close(ranges)
		failed <- readRanges(in, ranges)
	}()
	var messages []Message
	for {
		select {
		case <-ctx.Done():
			return nil
		case r, more := <-ranges:
			if !more {
				return errors.Join(<-failed, to.Wait(ctx))
			}
			for row := r[0]; row < r[1]; row++ {
				messages = append(messages, rows.message(row))
				last := row+1 == r[1] && len(ranges) == 0 // or else more rows are waiting
				if last || len(messages) == chunk {
					if err := to.Publish(ctx, messages); err != nil && ctx.Err() == nil {
						return err
					}
					messages = nil
				}
			}
		}
	}
}

// chunk is the maximum number of rows that are given to a Producer at once.
const chunk = 500

type source struct {
	plan
	names []string
}

func readRows(dir string) (*source, error) {
	text, err := os.ReadFile(filepath.Join(dir, rowsFile)) //nolint:gosec // a directory of ours
	if err != nil {
		return nil, err
	}
	var r rowsToPublish
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(dir, dustFile)) //nolint:gosec // a directory of ours
	if err != nil {
		return nil, err
	}
	return &source{plan{rows: r.Rows, keys: r.Keys, topics: len(r.Topics), payload: r.Payload, dust: dustOf(raw)}, r.Topics}, nil
}

// message returns a row as the relay would send it.
func (s *source) message(row int) Message {
	key := s.key(row)
	return Message{
		Topic: s.names[key%s.topics], Key: aggregateID(key), Type: "OrderPlaced",
		ID:      fmt.Sprintf("00000000-0000-7000-8000-%012x", row),
		Payload: s.appendPayload(make([]byte, 0, s.payload), row),
	}
}

func readRanges(in io.Reader, ranges chan<- [2]int) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var r [2]int
		if _, err := fmt.Sscan(lines.Text(), &r[0], &r[1]); err != nil {
			return fmt.Errorf("rows to publish %q: %w", lines.Text(), err)
		}
		ranges <- r
	}
	return lines.Err()
}
