package e2e

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
	"github.com/outbox-cdc/outbox-cdc/test/kit/tracetest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

const (
	aTrace      = "4bf92f3577b34da6a3ce929d0e0e4736"
	aSpan       = "00f067aa0ba902b7"
	traceparent = "00-" + aTrace + "-" + aSpan + "-01"
)

// traced has the rig's relay export spans to url.
func traced(t *testing.T, r *rig.Rig, url string) {
	t.Helper()
	r.Config = rig.WriteConfig(t, r.DB.DSN, r.Kafka.Addrs[0], r.Slot, r.Topic,
		"tracing: {endpoint: '"+strings.TrimSuffix(url, "/v1/traces")+"'}")
}

// insertTraced writes rows in one transaction, each with its headers and its trace.
func insertTraced(t *testing.T, r *rig.Rig, rows ...[2]string) {
	t.Helper()
	conn := r.Connect(t)
	tx, err := conn.Begin(t.Context())
	rig.Must(t, err)
	for _, row := range rows {
		_, err := tx.Exec(t.Context(), `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers, trace)
			VALUES (gen_random_uuid(), 'order', 'order-7', 'OrderPlaced', '{"total": 9.50}', nullif($1, '')::jsonb, nullif($2, ''))`, row[0], row[1])
		rig.Must(t, err)
	}
	rig.Must(t, tx.Commit(t.Context()))
}

// readRecords waits for so many records of the topic.
func readRecords(t *testing.T, r *rig.Rig, n int) []*kgo.Record {
	t.Helper()
	var records []*kgo.Record
	wait.For(t, "records", func() bool {
		records = r.Kafka.ReadAll(t, r.Topic)
		return len(records) >= n
	})
	return records
}

func headerOf(rec *kgo.Record, name string) string {
	var values []string
	for _, h := range rec.Headers {
		if h.Key == name {
			values = append(values, string(h.Value))
		}
	}
	return strings.Join(values, " and ")
}

// leaderOf returns the broker that a partition of the topic is written to.
func leaderOf(t *testing.T, r *rig.Rig, partition int32) kgo.BrokerMetadata {
	t.Helper()
	all, err := r.Kafka.Admin(t).Metadata(t.Context(), r.Topic)
	rig.Must(t, err)
	for _, b := range all.Brokers {
		if b.NodeID == all.Topics[r.Topic].Partitions[partition].Leader {
			return b
		}
	}
	t.Fatalf("partition %d has no leader", partition)
	return kgo.BrokerMetadata{}
}

// A row whose context is sampled has a span between the one that wrote it and those of its
// consumers. Every other row's context is passed on as it is, wherever the row keeps it.
func TestTracing(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	_, err := r.Connect(t).Exec(t.Context(), `ALTER TABLE outbox ADD COLUMN trace text`)
	rig.Must(t, err)
	receiver := tracetest.Start(t, httptest.NewServer)
	secret := filepath.Join(t.TempDir(), "headers")
	rig.Must(t, os.WriteFile(secret, []byte("api-key=s3cret\n"), 0o600))
	traced(t, r, receiver.URL)
	// Variables of OpenTelemetry have no effect.
	process := rig.StartProgram(t, "/usr/bin/env", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TRACES_HEADERS=api-key=environment",
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/json", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip", "OTEL_SERVICE_NAME=environment",
		"OTEL_RESOURCE_ATTRIBUTES=of=environment", "OTEL_TRACES_SAMPLER=always_off", "OTEL_SDK_DISABLED=true",
		rig.Binary(t), "run", "-c", r.Config, "--set", "outbox.columns.trace_context=trace", "--set", "tracing.headers_file="+secret,
		"--set", "tracing.resource=deployment.environment.name=test", "--set", "tracing.message_key=true")
	process.Logged(t, "streaming")

	const unsampled = "00-" + aTrace + "-" + aSpan + "-00"
	before := time.Now()
	insertTraced(t, r,
		[2]string{`{"traceparent": "` + traceparent + `", "tracestate": "congo=t61rcWkgMzE"}`, ""},
		[2]string{`{"traceparent": "` + unsampled + `"}`, ""},
		[2]string{"", ""},
		[2]string{"", "#Sat Nov 21\ntracestate=a\\=b\ntraceparent=" + traceparent},
		[2]string{"", "not a context"},
	)
	records := readRecords(t, r, 5)
	spans := receiver.Received(t, 2)
	if len(records) != 5 || len(spans) != 2 {
		t.Fatalf("%d records, %d spans", len(records), len(spans))
	}
	byID := make(map[string]tracetest.Span)
	for _, s := range spans {
		byID[s.Attributes["messaging.message.id"].(string)] = s
	}
	for i, want := range []struct{ state, parent string }{
		{state: "congo=t61rcWkgMzE"}, {parent: unsampled}, {}, {state: "a=b"}, {parent: "not a context"},
	} {
		rec := records[i]
		s, ok := byID[headerOf(rec, "id")]
		if ok != (want.state != "") || headerOf(rec, "tracestate") != want.state {
			t.Errorf("record %d: %+v, headers %q", i, s, rec.Headers)
		}
		if !ok {
			if got := headerOf(rec, "traceparent"); got != want.parent {
				t.Errorf("record %d: traceparent is %q, want %q", i, got, want.parent)
			}
			continue
		}
		if got := headerOf(rec, "traceparent"); got != "00-"+aTrace+"-"+s.SpanID+"-01" || s.SpanID == aSpan {
			t.Errorf("record %d: traceparent is %s, and the span is %s", i, got, s.SpanID)
		}
		// The record's time is the commit's, to the millisecond.
		if s.Start.UnixMilli() != rec.Timestamp.UnixMilli() || s.EventAt.Before(s.Start) || s.End.Before(s.EventAt) || s.Start.Before(before.Add(-time.Second)) || s.End.After(time.Now()) {
			t.Errorf("record %d: from %s by %s to %s, committed at %s", i, s.Start, s.EventAt, s.End, rec.Timestamp)
		}
		leader := leaderOf(t, r, rec.Partition)
		fixed := map[string]any{
			"messaging.system": "kafka", "messaging.operation.type": "send", "messaging.operation.name": "send", "messaging.client.id": r.Slot,
			"messaging.destination.name": r.Topic, "messaging.destination.partition.id": strconv.Itoa(int(rec.Partition)), "messaging.kafka.offset": rec.Offset,
			"messaging.message.id": headerOf(rec, "id"), "messaging.kafka.message.key": "order-7", "messaging.message.body.size": int64(len(rec.Value)),
			"server.address": leader.Host, "server.port": int64(leader.Port), "outbox_cdc.commit_lsn": s.Attributes["outbox_cdc.commit_lsn"],
		}
		version, _ := s.Resource["service.version"].(string)
		if diff := cmp.Diff(tracetest.Span{
			TraceID: aTrace, SpanID: s.SpanID, Parent: aSpan, State: want.state, Name: "send " + r.Topic, Kind: "SPAN_KIND_PRODUCER", Flags: 0x301,
			Start: s.Start, End: s.End, Event: "handed to producer", EventAt: s.EventAt, Attributes: fixed, Scope: s.Scope, Schema: s.Schema,
			Resource: map[string]any{"service.name": r.Slot, "service.version": version, "deployment.environment.name": "test"},
		}, s); diff != "" || version == "" || regexp.MustCompile(`^[0-9A-F]+/[0-9A-F]+$`).FindString(fmt.Sprint(s.Attributes["outbox_cdc.commit_lsn"])) == "" {
			t.Errorf("record %d (-want +got):\n%s", i, diff)
		}
	}
	for _, h := range receiver.Requests() {
		if h.Get("Api-Key") != "s3cret" {
			t.Errorf("headers of a request: %v", h)
		}
	}
	exemplars(t, r, process)
	if _, shown := process.Ask(t, "config"); strings.Contains(shown+process.Stderr.String(), "s3cret") {
		t.Error("the secret is shown")
	}

	// What ends just before a stop is exported by it.
	insertTraced(t, r, [2]string{`{"traceparent": "` + traceparent + `"}`, ""})
	readRecords(t, r, 6)
	process.Terminate(t)
	if n := len(receiver.Spans()); n != 3 {
		t.Errorf("%d spans after the end", n)
	}
}

// exemplars checks that who asks for OpenMetrics is led from both latencies to the trace.
func exemplars(t *testing.T, r *rig.Rig, process *rig.Process) {
	t.Helper()
	want := map[string]bool{"outbox_cdc_ack_seconds_bucket": true, "outbox_cdc_commit_to_ack_seconds_bucket": true}
	got := make(map[string]bool)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, rig.AdminURL.FindStringSubmatch(process.Stderr.String())[1]+"metrics", nil)
	rig.Must(t, err)
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	res, err := http.DefaultClient.Do(req)
	rig.Must(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	rig.Must(t, err)
	for line := range strings.Lines(string(body)) {
		if name, _, _ := strings.Cut(line, "{"); strings.Contains(line, ` # {trace_id="`+aTrace+`"} `) {
			got[name] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("exemplars (-want +got):\n%s", diff)
	}
	wait.For(t, "the spans to be counted", func() bool {
		_, metrics := process.Ask(t, "metrics")
		return strings.Contains(metrics, "\noutbox_cdc_spans_total{name=\""+r.Slot+"\"} 2\n")
	})
}

// insertMany writes n rows whose contexts are sampled, each a transaction and a trace of its own.
func insertMany(t *testing.T, r *rig.Rig, n int) {
	t.Helper()
	conn := r.Connect(t)
	for begin := 0; begin < n; begin += 50 {
		_, err := conn.Exec(t.Context(), `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers)
			SELECT gen_random_uuid(), 'order', 'order-' || i % 16, 'OrderPlaced', '1', jsonb_build_object('traceparent', '00-' || md5(i::text) || '-00f067aa0ba902b7-01')
			FROM generate_series($1::int, $2::int) i`, begin, begin+49)
		rig.Must(t, err)
	}
}

// While the receiver is gone records are delivered as ever. Those that have a span by then get it
// through when it is back; those that found no room have the context they came with. So no record
// ever names a span that nobody has.
func TestTracingReceiverDown(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for several back-offs")
	r := rig.New(t)
	gone, err := serverproc.ReservePort()
	rig.Must(t, err)
	t.Cleanup(gone.Close)
	traced(t, r, "http://"+gone.Addr())
	process := r.Run(t)
	const rows = 4000
	insertMany(t, r, rows)
	records := readRecords(t, r, rows)
	process.Logged(t, "spans cannot be exported")
	named, kept := make(map[string]bool), 0
	for _, rec := range records {
		parts := strings.Split(headerOf(rec, "traceparent"), "-")
		if parts[2] == aSpan {
			kept++
			continue
		}
		named[parts[1]+parts[2]] = true
	}
	wait.For(t, "dropped spans to be counted", func() bool {
		_, metrics := process.Ask(t, "metrics")
		return kept > 0 && strings.Contains(metrics, fmt.Sprintf("\noutbox_cdc_spans_dropped_total{name=%q} %d\n", r.Slot, kept))
	})

	receiver := tracetest.Start(t, func(h http.Handler) *httptest.Server {
		server := httptest.NewUnstartedServer(h)
		server.Listener.Close()
		server.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", gone.Addr())
		rig.Must(t, err)
		server.Start()
		return server
	})
	process.Logged(t, "spans are exported again")
	receiver.Wait(t, "all spans", func() bool { return len(receiver.Spans()) >= rows-kept })
	exported := make(map[string]bool)
	for _, s := range receiver.Spans() {
		exported[s.TraceID+s.SpanID] = true
	}
	if !maps.Equal(named, exported) {
		t.Errorf("%d records name a span, %d were exported, %d records kept their context", len(named), len(exported), kept)
	}
	for _, line := range []string{"spans cannot be exported", "spans are exported again"} {
		if n := process.Times(line); n != 1 {
			t.Errorf("%q is %d times in the log", line, n)
		}
	}
	process.Terminate(t)
}

// A receiver that does not answer delays neither records nor the stop.
func TestTracingReceiverHangs(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "the stop waits for the receiver; package tracing tests one that hangs")
	r := rig.New(t)
	hang := make(chan struct{})
	receiver := tracetest.Start(t, httptest.NewServer)
	t.Cleanup(func() { close(hang) })
	receiver.Answer(func(http.ResponseWriter, *http.Request) { <-hang })
	traced(t, r, receiver.URL)
	process := rig.Start(t, "run", "-c", r.Config, "--set", "drain_timeout=1s")
	process.Logged(t, "streaming")
	insertMany(t, r, 200)
	readRecords(t, r, 200)
	r.Confirmed(t)
	process.Terminate(t)
	if out := process.Stderr.String(); !strings.Contains(out, "spans were not exported before the end") || !strings.Contains(out, "spans=200") {
		t.Errorf("not told:\n%s", rig.Tail(out, 5))
	}
}
