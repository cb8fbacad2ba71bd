package admin

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
)

var update = flag.Bool("update", false, "write the table of metrics into docs/metrics.md")

// gather returns the metrics of a relay by name. All values of the relay are known.
func gather(t *testing.T, stat relay.Stat) map[string]*dto.MetricFamily {
	t.Helper()
	s := New(Config{Name: "orders", Version: "v1.0.0"}, discard())
	s.takeSample(func() relay.Stat { return stat })
	s.answered.observe(time.Millisecond, "")
	s.delivery.observe(2*time.Millisecond, "")
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	byName := make(map[string]*dto.MetricFamily)
	for _, f := range families {
		byName[f.GetName()] = f
	}
	return byName
}

// values returns the values of a family by the value of its label.
func values(f *dto.MetricFamily, label string) map[string]float64 {
	out := make(map[string]float64)
	for _, m := range f.GetMetric() {
		of := ""
		for _, l := range m.GetLabel() {
			if l.GetName() == label {
				of = l.GetValue()
			}
		}
		out[of] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return out
}

// Prometheus can distinguish a standby from a relay that does not stream because of an error.
func TestMetricsOfAStandby(t *testing.T) {
	for role, want := range map[relay.Role]float64{relay.Standby: 1, relay.NoRole: 0} {
		st := healthy()
		st.State, st.Role = relay.Waiting, role
		families := gather(t, st)
		if got := values(families[namespace+"standby"], "name"); got["orders"] != want {
			t.Errorf("role %q: standby is %v", role, got)
		}
		if got := values(families[namespace+"streaming"], "name"); got["orders"] != 0 {
			t.Errorf("role %q: streaming is %v", role, got)
		}
		if _, lag := families[namespace+"lag_seconds"]; lag != (role != relay.Standby) {
			t.Errorf("role %q: has a lag: %t", role, lag)
		}
	}
}

// Prometheus sees how far a refill is. Nothing remains when none is running.
func TestMetricsOfARefill(t *testing.T) {
	for _, test := range []struct {
		refill             *relay.RefillStat
		running, remaining float64
	}{
		{nil, 0, 0},
		{&relay.RefillStat{Rows: 300, Total: 1000}, 1, 700},
		{&relay.RefillStat{Rows: 300, Total: 200}, 1, 0},
	} {
		st := healthy()
		st.Refill = test.refill
		families := gather(t, st)
		running, remaining := values(families[namespace+"refilling"], "name")["orders"], values(families[namespace+"refill_rows_remaining"], "name")["orders"]
		if running != test.running || remaining != test.remaining {
			t.Errorf("%+v: refilling is %v, remaining %v", test.refill, running, remaining)
		}
	}
}

func TestMetrics(t *testing.T) {
	st := healthy()
	st.DeadLetters, st.Refused, st.Sink.Reconnects, st.Sink.DuplicatesPossible = 5, 2, 7, 1
	st.Sink.StalledSince = time.Now().Add(-time.Minute)
	st.Behind = time.Now().Add(-time.Minute)
	parkTwo(&st)
	st.Followed = 1
	st.Slot.SpilledBytes = 4_000_000
	st.Spans = &tracing.Stat{Exported: 11, Dropped: 22, Rejected: 33}
	families := gather(t, st)
	for name, want := range map[string]map[string]float64{
		"records_total topic":       {"outbox.event.order": 31_900_000, "outbox.event.customer": 9_180_000},
		"bytes_total":               {"": 7_480_000_000},
		"transactions_total":        {"": 4_100_000},
		"reconnects_total side":     {"source": 1, "sink": 7},
		"bad_records_total reason":  {"row": 2, "broker": 2},
		"parked_records_total":      {"": 1235},
		"parked_keys":               {"": 2},
		"duplicates_possible_total": {"": 1},
		"streaming":                 {"": 1},
		"lag_bytes":                 {"": 0x108},
		"in_flight_records":         {"": 12},
		"in_flight_bytes":           {"": 4120},
		"confirmed_lsn_bytes":       {"": 0x2A_7F3C5A08},
		"slot_retained_bytes":       {"": 34_000_000},
		"slot_safe_bytes":           {"": 10_700_000_000},
		"slot_spilled_bytes_total":  {"": 4_000_000},
		"spans_total":               {"": 11},
		"spans_dropped_total":       {"": 22},
		"spans_rejected_total":      {"": 33},
		"build_info version":        {"v1.0.0": 1},
	} {
		name, label, _ := strings.Cut(name, " ")
		f := families[namespace+name]
		if diff := cmp.Diff(want, values(f, label)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got := values(f, "name"); len(got) != 1 || slices.Contains([]float64{got["orders"]}, 0) {
			t.Errorf("%s does not name the relay: %v", name, f)
		}
	}
	for _, name := range []string{"lag_seconds", "sink_stalled_seconds"} {
		if got := values(families[namespace+name], "")[""]; got < 60 || got > 90 {
			t.Errorf("%s is %v", name, got)
		}
	}
	if got := values(families[namespace+"parked_oldest_seconds"], "")[""]; got < 3*3600 || got > 3*3600+60 {
		t.Errorf("parked_oldest_seconds is %v", got)
	}
	for _, name := range []string{"ack_seconds", "commit_to_ack_seconds"} {
		h := families[namespace+name].GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != 1 || len(h.GetBucket()) != len(classicBuckets()) || h.GetSchema() != bucketSchema || len(h.GetPositiveSpan()) == 0 {
			t.Errorf("%s is not both classic and native: %v", name, h)
		}
	}
	if families["go_goroutines"] == nil || families["process_start_time_seconds"] == nil {
		t.Error("no metrics of process and runtime")
	}
	st.Slot.SafeBytes, st.State, st.Spans = nil, relay.Waiting, nil
	st.Since = time.Now().Add(-2 * time.Hour)
	families = gather(t, st)
	if families[namespace+"slot_safe_bytes"] != nil {
		t.Error("a slot without a limit has a limit metric")
	}
	if families[namespace+"spans_total"] != nil {
		t.Error("there are span metrics without tracing")
	}
	if got := values(families[namespace+"lag_seconds"], "")[""]; got < 7200 {
		t.Errorf("nothing is read for two hours, and the lag is %v", got)
	}
}

// The number of topic labels is limited. A count never moves from one label to another.
func TestTopicLabelsAreCapped(t *testing.T) {
	s := New(Config{}, discard())
	st := relay.Stat{Sink: sink.Stat{Topics: make(map[string]sink.TopicStat)}}
	count := func() map[string]float64 {
		s.takeSample(func() relay.Stat { return st })
		families, err := s.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == namespace+"records_total" {
				return values(f, "topic")
			}
		}
		return nil
	}
	for i := range topicLabels - 1 {
		st.Sink.Topics[fmt.Sprintf("m%03d", i)] = sink.TopicStat{Records: 1}
	}
	st.Sink.Topics[otherTopics] = sink.TopicStat{Records: 5}
	if got := count(); len(got) != topicLabels || got[otherTopics] != 5 {
		t.Errorf("%d labels: %v", len(got), got)
	}
	for i := range 300 {
		st.Sink.Topics[fmt.Sprintf("a%03d", i)] = sink.TopicStat{Records: 1}
	}
	got := count()
	if len(got) != topicLabels+1 || got[otherTopics] != 304 || got["m000"] != 1 || got["a000"] != 1 || got["a001"] != 0 {
		t.Errorf("%d labels: %v", len(got), got)
	}
}

func TestOpenMetrics(t *testing.T) {
	s, url := serve(t, nil, healthy)
	s.delivery.observe(time.Millisecond, "")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	for accept, want := range map[string]string{
		"application/openmetrics-text; version=1.0.0": "application/openmetrics-text; version=1.0.0",
		"text/plain": "text/plain; version=0.0.4",
		"application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited": "application/vnd.google.protobuf",
	} {
		req.Header.Set("Accept", accept)
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || !strings.HasPrefix(got, want) {
			t.Errorf("for %s: %s, %s", accept, res.Status, got)
		}
	}
}

// With OpenMetrics, a client gets the trace id of a slow transaction as an exemplar. With other formats it does
// not.
func TestExemplars(t *testing.T) {
	s, url := serve(t, nil, healthy)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	s.delivery.observe(30*time.Millisecond, "")
	s.delivery.observe(700*time.Millisecond, trace)
	s.answered.observe(3*time.Millisecond, trace)
	body := func(accept string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	open := body("application/openmetrics-text; version=1.0.0")
	var got []string
	for line := range strings.Lines(open) {
		if sample, exemplar, ok := strings.Cut(line, " # "); ok {
			value, _, _ := strings.Cut(exemplar, "} ")
			got = append(got, sample+" "+value+"} "+strings.Fields(exemplar)[1])
		}
	}
	want := []string{
		`outbox_cdc_ack_seconds_bucket{name="orders",le="0.005"} 1 {trace_id="` + trace + `"} 0.003`,
		`outbox_cdc_commit_to_ack_seconds_bucket{name="orders",le="1.0"} 2 {trace_id="` + trace + `"} 0.7`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := body("text/plain"); strings.Contains(text, trace) || !strings.Contains(text, `commit_to_ack_seconds_bucket{name="orders",le="1"} 2`) {
		t.Error("the plain format has exemplars, or nothing")
	}
}

// TestReference checks the documented table against the registry. -update writes it.
func TestReference(t *testing.T) {
	var want strings.Builder
	want.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	st := healthy()
	st.Spans = new(tracing.Stat)
	families := gather(t, st)
	names := make([]string, 0, len(families))
	for name := range families {
		if strings.HasPrefix(name, namespace) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		f := families[name]
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			if l.GetName() != "name" {
				labels = append(labels, "`"+l.GetName()+"`")
			}
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
	}
	doctest.CheckPart(t, "../../docs/metrics.md", "metrics", want.String(), *update)
}

// BenchmarkObserve measures the cost of recording one transaction or request.
func BenchmarkObserve(b *testing.B) {
	l := newLatency(commitToAckSeconds())
	for i := range b.N {
		l.observe(time.Duration(300+i%4096)*time.Microsecond, "")
	}
}

// A status that somebody asks for between two samples does not take the latencies out of the history.
func TestLatencyBetweenSamples(t *testing.T) {
	s, st := New(Config{}, discard()), relay.Stat{}
	now := func() relay.Stat { return st }
	s.takeSample(now)
	s.delivery.observe(20*time.Second, "")
	s.refresh(now)
	s.takeSample(now)
	if p50 := float64(s.status(time.Now()).Latency.CommitToAckP50); !(p50 > 18 && p50 < 22) {
		t.Errorf("the median is %g s, want 20 s", p50)
	}
}
