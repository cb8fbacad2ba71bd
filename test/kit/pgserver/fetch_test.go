//go:build unix

package pgserver

import (
	"context"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

func TestFetchedServerRuns(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var last Progress
	calls := 0
	began := time.Now()
	install, err := Fetch(ctx, 0, func(p Progress) { last = p; calls++ })
	if err != nil {
		need.Missing(t, "no Postgres to fetch: %v", err)
	}
	t.Logf("%s in %s after %v, %d reports, last %+v", install, install.BinDir, time.Since(began).Round(time.Millisecond), calls, last)
	if calls > 0 && (!last.Unpacking || last.Bytes != last.Total) {
		t.Errorf("last report %+v", last)
	}
	s := start(t, Config{BinDir: install.BinDir})
	t.Log(query(t, s, "SELECT version()"))
}
