package admin

import (
	"encoding/json"
	"math"
	"slices"
	"sync"
)

const (
	kept = 15 * 60 // points of the history, one a second

	// window is the time in seconds over which latencies and rates are computed: long enough to be readable.
	window = 10
)

// A history has the points of the last quarter of an hour, and the last few samples.
type history struct {
	mu     sync.Mutex
	points [kept]point
	recent [window + 1]*sample
	n      int // ever added
}

// A number is a float that is null in JSON if it is NaN or infinite.
type number float64

// MarshalJSON implements [json.Marshaler].
func (n number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON implements [json.Unmarshaler].
func (n *number) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*n = none()
		return nil
	}
	return json.Unmarshal(data, (*float64)(n))
}

// none returns the number for an unknown value.
func none() number { return number(math.NaN()) }

// orNone returns *v, or none if v is nil.
func orNone(v *float64) number {
	if v == nil {
		return none()
	}
	return number(*v)
}

// A History is the response of /history.
type History struct {
	Columns []string `json:"columns"`
	Points  []point  `json:"points"` // oldest first, one per second
}

// Column returns a column in the order of Points, with NaN for unknown values. It returns nil if there is no such column.
func (h *History) Column(name string) []float64 {
	i := slices.Index(h.Columns, name)
	if i < 0 || i >= len(point{}) {
		return nil
	}
	numbers := make([]float64, len(h.Points))
	for n, p := range h.Points {
		numbers[n] = float64(p[i])
	}
	return numbers
}

// Follow adds the latest point of s, unless it is there, and removes points that are too old for /history.
func (h *History) Follow(s *Status) {
	if n := len(h.Points); n > 0 && h.Points[n-1][columnAt] >= s.Point[columnAt] {
		return
	}
	h.Columns = s.Columns
	h.Points = append(h.Points, s.Point)
	h.Points = h.Points[max(0, len(h.Points)-kept):]
}

// A point has the values of a sample that charts show, in the order of columns.
type point [8]number

// columns returns the names of the values of a point.
func columns() []string {
	return []string{"at", "records_per_second", "lag_bytes", "lag_seconds", "commit_to_ack_p50", "commit_to_ack_p99", "in_flight_records", "slot_safe_bytes"}
}

const columnAt = 0

func pointOf(s, before *sample) point {
	rate, safe := none(), none()
	if before != nil {
		rate = number(perSecond(before, s, s.records-before.records))
	}
	if s.stat.Slot.SafeBytes != nil {
		safe = number(*s.stat.Slot.SafeBytes)
	}
	return point{
		number(s.at.UnixMilli()) / 1000, rate, number(s.lagBytes()), s.lag(),
		orNone(s.delivery.quantile(0.5)), orNone(s.delivery.quantile(0.99)), number(s.stat.Sink.InFlightRecords), safe,
	}
}

// perSecond returns n as a rate between two samples; 0 if a counter was reset.
func perSecond(from, to *sample, n int64) float64 {
	passed := to.at.Sub(from.at).Seconds()
	if passed <= 0 || n < 0 {
		return 0
	}
	return float64(n) / passed
}

func (h *history) add(s *sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var before *sample
	if h.n > 0 {
		before = h.recent[(h.n-1)%len(h.recent)]
	}
	h.points[h.n%kept] = pointOf(s, before)
	h.recent[h.n%len(h.recent)] = s
	h.n++
}

// last returns the latest n points, or all if there are fewer, oldest first.
func (h *history) last(n int) []point {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = min(n, h.n, kept)
	out := make([]point, n)
	for i := range n {
		out[i] = h.points[(h.n-n+i)%kept]
	}
	return out
}

// window returns the oldest sample in the window, and the durations observed since then.
func (h *history) window() (from *sample, answered, delivery distribution) {
	h.mu.Lock()
	defer h.mu.Unlock()
	answered, delivery = make(distribution), make(distribution)
	n := min(h.n, len(h.recent))
	for i := range n {
		s := h.recent[(h.n-n+i)%len(h.recent)]
		if i == 0 {
			from = s
			continue
		}
		answered.add(s.answered)
		delivery.add(s.delivery)
	}
	return from, answered, delivery
}
