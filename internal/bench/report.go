package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
)

// A report has all measurements. In its JSON, durations are in nanoseconds and runs are
// by number.
type report struct {
	Machine     machine        `json:"machine"`
	Suite       string         `json:"suite"`
	Sink        string         `json:"sink"` // kind of the broker
	Runs        int            `json:"runs"`
	Started     time.Time      `json:"started"`
	Took        string         `json:"took"`
	Checks      []check        `json:"checks"`
	Failures    []string       `json:"failures"`               // failed measurements
	NotCompared string         `json:"not_compared,omitempty"` // why nothing is compared with pg_recvlogical
	Drains      []drainTable   `json:"drains"`
	Over        Spread         `json:"latency_and_idle_over"`
	Latency     []latencyTable `json:"latency"`
	Resting     []resting      `json:"start_up_and_idle"`
	Outages     []outage       `json:"outages"`
}

// A check has the verdict on a contender over all measurements.
type check struct {
	Contender    string          `json:"contender"`
	Measurements int             `json:"measurements"`
	Records      int             `json:"records"`
	Verdict      measure.Verdict `json:"verdict"`
}

// A drainTable has the results for one backlog.
type drainTable struct {
	Case    drainCase     `json:"case"`
	Entries []*drainEntry `json:"entries"`
}

type drainEntry struct {
	Contender   string                      `json:"contender"`
	Compression string                      `json:"compression"` // empty for one that does not produce
	Runs        series[measure.DrainResult] `json:"runs"`
}

// A latencyTable has the results for one rate.
type latencyTable struct {
	Rate    int             `json:"rate"`
	Entries []*latencyEntry `json:"entries"`
}

type latencyEntry struct {
	Contender string                        `json:"contender"`
	Runs      series[measure.LatencyResult] `json:"runs"`
}

// resting is the cost of a contender while it is idle.
type resting struct {
	Contender string                     `json:"contender"`
	StartUp   series[time.Duration]      `json:"start_up"`
	Idle      series[measure.IdleResult] `json:"idle"`
}

// An outage is what happened to a contender while the broker was away.
type outage struct {
	Contender string                       `json:"contender"`
	Runs      series[measure.OutageResult] `json:"runs"`
}

// checked adds a verdict.
func (r *report) checked(contender string, records int, v measure.Verdict) {
	i := slices.IndexFunc(r.Checks, func(c check) bool { return c.Contender == contender })
	if i < 0 {
		i = len(r.Checks)
		r.Checks = append(r.Checks, check{Contender: contender})
	}
	c := &r.Checks[i]
	c.Measurements++
	c.Records += records
	c.Verdict.Lost += v.Lost
	c.Verdict.Duplicates += v.Duplicates
	c.Verdict.OutOfOrder += v.OutOfOrder
	c.Verdict.Altered += v.Altered
}

// err returns an error if records were wrong or a measurement failed. Slow is no error.
func (r *report) err() error {
	for _, c := range r.Checks {
		if !c.Verdict.Good() {
			return fmt.Errorf("%s has lost, duplicate, out-of-order or altered records: see the report", c.Contender)
		}
	}
	if n := len(r.Failures); n > 0 {
		return fmt.Errorf("%d measurements failed: see the report", n)
	}
	return nil
}

// find returns the entry of a contender, or nil. The floor has no compression, so find
// ignores it there.
func (t drainTable) find(contender, compression string) *drainEntry {
	for _, e := range t.Entries {
		if e.Contender == contender && (e.Compression == compression || e.Compression == "") {
			return e
		}
	}
	return nil
}

func (t latencyTable) find(contender string) *latencyEntry {
	for _, e := range t.Entries {
		if e.Contender == contender {
			return e
		}
	}
	return nil
}

func (r *report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "\t")
	return encoder.Encode(r)
}

func (r *report) saveJSON(path string) error {
	var text bytes.Buffer
	if err := r.writeJSON(&text); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644) //nolint:gosec // to be read by all
}
