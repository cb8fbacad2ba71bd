package conformance

import (
	"os"
	"strings"
	"testing"
	"time"
)

// load reads every case of the corpus.
func TestLoad(t *testing.T) {
	cases, err := load(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		switch {
		case len(c.rows) == 0:
			t.Errorf("%s: no statement writes anything", c.name)
		case len(c.records) == 0 && c.failure == "":
			t.Errorf("%s: no record and no failure", c.name)
		}
	}
}

const line = `{"topic":"t","partition":1,"offset":0,"key":"aw==","value":"","headers":[["id","MQ=="],["run","*"],["none",null]],"timestamp_ms":1000}`

// compare finds a difference in each part of a record, and distinguishes null from empty.
func TestCompare(t *testing.T) {
	at := time.UnixMilli(1000)
	for name, tc := range map[string]struct {
		change func(r *Record)
		want   string // empty: no difference
	}{
		"nothing":             {func(*Record) {}, ""},
		"what is always new":  {func(r *Record) { r.Headers[1].Value = []byte("9") }, ""},
		"key":                 {func(r *Record) { r.Key = []byte("K") }, `key is "K", want "k"`},
		"null for empty":      {func(r *Record) { r.Value = nil }, `value is null, want ""`},
		"empty for null":      {func(r *Record) { r.Headers[2].Value = []byte{} }, `header none is "", want null`},
		"order of headers":    {func(r *Record) { r.Headers[0], r.Headers[1] = r.Headers[1], r.Headers[0] }, "list of headers is run, id, none"},
		"a header too few":    {func(r *Record) { r.Headers = r.Headers[:2] }, "list of headers"},
		"timestamp":           {func(r *Record) { r.Timestamp = at.Add(time.Millisecond) }, "timestamp"},
		"partition":           {func(r *Record) { r.Partition = 2 }, "t/1@0: no record"},
		"a record in between": {func(r *Record) { r.Offset = 1 }, "t/1@1: a record that was not recorded"},
	} {
		want, err := parseRecords(line)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseRecords(line)
		if err != nil {
			t.Fatal(err)
		}
		tc.change(&got[0])
		diffs := strings.Join(compare(want, got, run{}), "\n")
		if (diffs == "") != (tc.want == "") || !strings.Contains(diffs, tc.want) {
			t.Errorf("%s: %q, want %q", name, diffs, tc.want)
		}
	}
}

// If a timestamp was not recorded, compare accepts any timestamp of the run.
func TestCompareTimestamp(t *testing.T) {
	run := run{began: time.UnixMilli(1000), ended: time.UnixMilli(2000)}
	for ms, ok := range map[int64]bool{999: false, 1000: true, 2000: true, 2001: false} {
		diffs := compare([]Record{{Topic: "t"}}, []Record{{Topic: "t", Timestamp: time.UnixMilli(ms)}}, run)
		if (len(diffs) == 0) != ok {
			t.Errorf("%d: %q", ms, diffs)
		}
	}
}

// parseRecords reads what line writes.
func TestLine(t *testing.T) {
	records, err := parseRecords(line)
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseRecords(records[0].line())
	if err != nil {
		t.Fatal(err)
	}
	if diffs := compare(records, again, run{}); diffs != nil {
		t.Error(diffs)
	}
}
