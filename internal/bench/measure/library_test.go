package measure

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A recorder is a Producer that keeps what it is given.
type recorder struct {
	messages []Message
	largest  int // messages of a call
	waited   bool
}

func (r *recorder) Publish(_ context.Context, messages []Message) error {
	r.messages, r.largest = append(r.messages, messages...), max(r.largest, len(messages))
	return nil
}

func (r *recorder) Wait(context.Context) error {
	r.waited = true
	return nil
}

// rowsIn writes the files of a Library for p into a directory.
func rowsIn(t *testing.T, p plan) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range map[string][]byte{
		rowsFile: []byte(`{"Rows": 2000, "Keys": 20, "Payload": 201, "Topics": ["a", "b", "c"]}`), dustFile: p.raw,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The rows of a library are those that the checker expects, each once and in the order of the input.
func TestPublishedRowsAreThoseOfThePlan(t *testing.T) {
	p := testPlan()
	p.rows = 2000
	var got recorder
	if err := Publish(t.Context(), rowsIn(t, p), strings.NewReader("0 1\n1 1990\n1990 2000\n"), &got); err != nil {
		t.Fatal(err)
	}
	c := newChecker(p, []string{"a", "b", "c"})
	for i := range got.messages {
		m := &got.messages[i]
		if rows := takeAll(c, record{m.Topic, []byte(m.Key), m.Payload}); rows[0] != i {
			t.Fatalf("message %d is that of row %d", i, rows[0])
		}
	}
	if v := c.verdict(); !v.Good() || got.largest > chunk || !got.waited {
		t.Errorf("%+v, up to %d at once, waited %t", v, got.largest, got.waited)
	}
}

func TestPublishEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, _ := io.Pipe() // never ends
	if err := Publish(ctx, rowsIn(t, testPlan()), in, &recorder{}); err != nil {
		t.Error(err)
	}
	if err := Publish(t.Context(), rowsIn(t, testPlan()), strings.NewReader("0 x\n"), &recorder{}); err == nil || !strings.Contains(err.Error(), `"0 x"`) {
		t.Errorf("a line that is no range: %v", err)
	}
}
