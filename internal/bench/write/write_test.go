package write

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Every variant is measured on both servers.
func TestRun(t *testing.T) {
	need.FullRun(t, "it measures two servers")
	pgtest.Server(t) // skips the test without Postgres
	rounds := make(map[string]int)
	results, err := Run(t.Context(), Options{Rounds: 1, Round: 20 * time.Millisecond, Clients: 2, Scale: 1},
		func(server string, done int) { rounds[server] = done })
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(rounds); got != "map[commit:1 cpu:1]" {
		t.Errorf("rounds: %s", got)
	}
	for _, r := range results {
		if r.PerSecond <= 0 || r.P99 <= 0 || r.WAL <= 0 || len(r.Events) != len(variants())-1 {
			t.Errorf("%+v", r)
		}
		for _, e := range r.Events {
			if e.Throughput <= 0 || e.CommitP50 <= 0 {
				t.Errorf("%s: %+v", r.Server, e)
			}
		}
	}
}

func TestQuantile(t *testing.T) {
	for _, test := range []struct {
		values []float64
		q      float64
		want   float64
	}{{nil, 0.5, 0}, {[]float64{3}, 0.99, 3}, {[]float64{3, 1, 2}, 0.5, 2}, {[]float64{4, 1, 3, 2, 5}, 0.25, 2}, {[]float64{4, 1, 3, 2, 5}, 1, 5}} {
		if got := quantile(test.values, test.q); got != test.want {
			t.Errorf("quantile(%v, %v) = %v, want %v", test.values, test.q, got, test.want)
		}
	}
}
