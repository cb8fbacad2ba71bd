//go:build unix

package pgserver

import (
	"context"
	"os"
	"testing"
	"time"
)

func TestFetchedServerRuns(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var last Progress
	calls := 0
	began := time.Now()
	install, err := Fetch(ctx, 0, func(p Progress) { last = p; calls++ })
	if err != nil {
		if os.Getenv("OUTBOX_TEST_REQUIRED") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Logf("%s in %s after %v, %d reports, last %+v", install, install.BinDir, time.Since(began).Round(time.Millisecond), calls, last)
	if calls > 0 && (!last.Unpacking || last.Bytes != last.Total) {
		t.Errorf("last report %+v", last)
	}
	s := start(t, Config{BinDir: install.BinDir})
	t.Log(query(t, s, "SELECT version()"))
}
