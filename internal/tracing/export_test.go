package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// A scripted is a receiver that responds without a network, so that it works with fake time.
type scripted struct {
	began    time.Time
	requests []time.Duration // since the start
	answer   func(n int, w http.ResponseWriter) error
}

func (s *scripted) RoundTrip(req *http.Request) (*http.Response, error) {
	s.requests = append(s.requests, bubble.Since(s.began))
	w := httptest.NewRecorder()
	if err := s.answer(len(s.requests), w); err != nil {
		<-req.Context().Done() // never responds
		return nil, err
	}
	return w.Result(), nil
}

// inVirtualTime runs a Tracer with one ended span and the receiver s for the time d, and returns the log.
func inVirtualTime(t *testing.T, s *scripted, d time.Duration, check func(*testing.T, *Tracer)) (log string) {
	t.Helper()
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		tracer := New(config("http://collector:4318/v1/traces"), slog.New(slog.NewTextHandler(&out, nil)))
		tracer.client.Transport = s
		s.began = time.Now()
		end := runTracer(t, tracer)
		startSpans(t, tracer, 1)
		tracer.End(Delivery{Seqs: []uint64{1}})
		bubble.Sleep(d)
		synctest.Wait()
		end()
		check(t, tracer)
	})
	return out.String()
}

func startSpans(t *testing.T, tracer *Tracer, seqs ...uint64) {
	t.Helper()
	for _, seq := range seqs {
		if _, ok := tracer.Start(message(t, seq)); !ok {
			t.Fatal("no span")
		}
	}
}

// The exporter resends spans after a temporary error, not earlier than Retry-After. It logs that once.
func TestRetry(t *testing.T) {
	s := &scripted{answer: func(n int, w http.ResponseWriter) error {
		switch n {
		case 1:
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2, 3, 4:
			w.WriteHeader([]int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusGatewayTimeout}[n-2])
		}
		return nil
	}}
	log := inVirtualTime(t, s, time.Minute, func(t *testing.T, tracer *Tracer) {
		if got := tracer.Stat(); got != (Stat{Exported: 1}) {
			t.Errorf("%+v", got)
		}
	})
	if len(s.requests) != 5 || s.requests[0] != exportEvery || s.requests[1] != exportEvery+7*time.Second || s.requests[4] > 22*time.Second {
		t.Errorf("requests at %v", s.requests)
	}
	for line, want := range map[string]int{"spans cannot be exported": 1, "503 Service Unavailable": 1, "spans are exported again": 1, "msg=": 2} {
		if n := strings.Count(log, line); n != want {
			t.Errorf("%q is %d times in the log, want %d:\n%s", line, n, want, log)
		}
	}
}

// If the receiver does not respond, the exporter retries for ever, with a pause of some seconds. Each attempt has a
// time limit.
func TestReceiverHangs(t *testing.T) {
	hangs := &scripted{answer: func(int, http.ResponseWriter) error { return errors.New("no answer") }}
	log := inVirtualTime(t, hangs, 10*time.Minute, func(t *testing.T, tracer *Tracer) {
		if got := tracer.Stat(); got != (Stat{}) {
			t.Errorf("%+v", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		if left, took := tracer.Flush(ctx), bubble.Since(began); left != 1 || took != 3*time.Second {
			t.Errorf("%d spans are left after %v", left, took)
		}
	})
	// Each attempt takes 10 s, followed by a pause of 5 to 10 s.
	if n := len(hangs.requests); n < 600/20 || n > 600/15+3 || strings.Count(log, "msg=") != 1 {
		t.Errorf("%d requests\n%s", n, log)
	}
}

// The exporter does not resend spans after a permanent error. It counts them. It logs once that the receiver
// rejects some of the spans.
func TestRejected(t *testing.T) {
	s := &scripted{answer: func(_ int, w http.ResponseWriter) error {
		w.WriteHeader(http.StatusUnauthorized)
		return nil
	}}
	log := inVirtualTime(t, s, time.Minute, func(t *testing.T, tracer *Tracer) {
		if got := tracer.Stat(); got != (Stat{Rejected: 1}) {
			t.Errorf("%+v", got)
		}
		partly, err := proto.Marshal(&collector.ExportTraceServiceResponse{
			PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: "too old"},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.answer = func(_ int, w http.ResponseWriter) error {
			_, err := w.Write(partly)
			return err
		}
		for range 2 {
			startSpans(t, tracer, 1, 2, 3)
			tracer.End(Delivery{Seqs: []uint64{1, 2, 3}})
			tracer.Flush(t.Context())
		}
		if got := tracer.Stat(); got != (Stat{Exported: 4, Rejected: 3}) {
			t.Errorf("%+v", got)
		}
	})
	for line, want := range map[string]int{"401 Unauthorized": 1, "spans are exported again": 1, `reason="too old"`: 1, "msg=": 3} {
		if n := strings.Count(log, line); n != want {
			t.Errorf("%q is %d times in the log, want %d:\n%s", line, n, want, log)
		}
	}
	if len(s.requests) != 3 {
		t.Errorf("requests at %v", s.requests)
	}
}

// An ended span waits a short time for others. A full batch is sent at once.
func TestBatches(t *testing.T) {
	s := &scripted{answer: func(int, http.ResponseWriter) error { return nil }}
	inVirtualTime(t, s, 10*time.Second, func(t *testing.T, tracer *Tracer) {
		if got := tracer.Stat(); got != (Stat{Exported: 1}) || len(s.requests) != 1 || s.requests[0] != exportEvery {
			t.Errorf("%+v, requests at %v", got, s.requests)
		}
		end := runTracer(t, tracer)
		defer end()
		began := time.Now()
		var seqs []uint64
		for seq := range uint64(batchSize) {
			startSpans(t, tracer, seq)
			seqs = append(seqs, seq)
		}
		tracer.End(Delivery{Seqs: seqs})
		synctest.Wait()
		if got := tracer.Stat(); got != (Stat{Exported: 1 + batchSize}) || bubble.Since(began) != 0 {
			t.Errorf("%+v after %v", got, bubble.Since(began))
		}
	})
}

// FuzzResponse: any response of a receiver is read without a panic.
func FuzzResponse(f *testing.F) {
	f.Add([]byte("\x0a\x04\x08\x01\x12\x00"))
	f.Add([]byte("\x0a\x04\x08\x30\x0a\x00")) // a field with the number of another, of a different type, is unknown
	f.Fuzz(func(t *testing.T, answer []byte) {
		rejected, why := partialSuccess(answer)
		var want collector.ExportTraceServiceResponse
		if proto.Unmarshal(answer, &want) != nil {
			return
		}
		if p := want.GetPartialSuccess(); rejected != uint64(p.GetRejectedSpans()) || why != p.GetErrorMessage() {
			t.Errorf("%x: %d %q, want %v", answer, rejected, why, p)
		}
	})
}
