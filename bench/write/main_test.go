package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The program measures every variant on both servers.
func TestRun(t *testing.T) {
	pgtest.Server(t) // or there is nothing to measure
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"-rounds", "1", "-round", "20ms", "-clients", "2", "-scale", "1"}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, v := range variants()[1:] {
		if n := strings.Count(out.String(), "\n| "+v.name+" | "); n != 2 {
			t.Errorf("%d rows for %s:\n%s", n, v.name, out.String())
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
