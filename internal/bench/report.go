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

// A report is all that was measured. Durations in its JSON are nanoseconds,
// runs are by number.
type report struct {
	Machine     machine        `json:"machine"`
	Suite       string         `json:"suite"`
	Runs        int            `json:"runs"`
	Started     time.Time      `json:"started"`
	Took        string         `json:"took"`
	Checks      []check        `json:"checks"`
	Failures    []string       `json:"failures"`               // measurements that could not be made
	NotCompared string         `json:"not_compared,omitempty"` // why nothing is compared with pg_recvlogical
	Drains      []drainTable   `json:"drains"`
	Latency     []latencyTable `json:"latency"`
	Resting     []resting      `json:"start_up_and_idle"`
}

// A check is what the consumer found of one contender in all measurements.
type check struct {
	Contender    string          `json:"contender"`
	Measurements int             `json:"measurements"`
	Records      int             `json:"records"`
	Verdict      measure.Verdict `json:"verdict"`
}

// A drainTable is what came out of one backlog.
type drainTable struct {
	Case    drainCase     `json:"case"`
	Entries []*drainEntry `json:"entries"`
}

type drainEntry struct {
	Contender   string                      `json:"contender"`
	Compression string                      `json:"compression"` // empty for one that does not produce
	Runs        series[measure.DrainResult] `json:"runs"`
}

// A latencyTable is what came out at one rate.
type latencyTable struct {
	Rate    int             `json:"rate"`
	Entries []*latencyEntry `json:"entries"`
}

type latencyEntry struct {
	Contender string                        `json:"contender"`
	Runs      series[measure.LatencyResult] `json:"runs"`
}

// resting is what a contender costs while it does not work.
type resting struct {
	Contender string                     `json:"contender"`
	StartUp   series[time.Duration]      `json:"start_up"`
	Idle      series[measure.IdleResult] `json:"idle"`
}

// checked enters what the consumer found.
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

// err says what is wrong with what was measured, as opposed to slow.
func (r *report) err() error {
	for _, c := range r.Checks {
		if !c.Verdict.Good() {
			return fmt.Errorf("%s lost, repeated, disordered or altered records: see the report", c.Contender)
		}
	}
	if n := len(r.Failures); n > 0 {
		return fmt.Errorf("%d measurements could not be made: see the report", n)
	}
	return nil
}

// find returns the entry of a contender; nil if it is not there. The floor's
// compression is empty, whatever is asked for.
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
