package sqs

import (
	"net/http"
	"slices"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	server := awstest.Fake(t)
	fifo, standard := server.Queue("a.fifo", DefaultMaxBytes), server.Queue("b", DefaultMaxBytes)
	small, topic := server.Queue("small.fifo", 1024), server.Topic("t.fifo", DefaultMaxBytes)
	for name, tc := range map[string]struct {
		use    sink.Use
		status int // of every response; 0: that of the server
		code   string
		want   []string // conditions that are not met
	}{
		"ready":          {use: sink.Use{Destinations: []sink.Destination{{Name: fifo}, {Name: topic}}, DeadLetters: standard}},
		"not FIFO":       {use: sink.Use{Destinations: []sink.Destination{{Name: standard}}}, want: []string{"order"}},
		"no key":         {use: sink.Use{Destinations: []sink.Destination{{Name: fifo, Keyless: 1}}}, want: []string{"order"}},
		"large records":  {use: sink.Use{Destinations: []sink.Destination{{Name: fifo, Largest: &sink.Record{Value: make([]byte, 300_000)}}}}, want: []string{"message size"}},
		"small messages": {use: sink.Use{Destinations: []sink.Destination{{Name: small}}}, want: []string{"message size"}},
		"missing":        {use: sink.Use{Destinations: []sink.Destination{{Name: "absent"}}, DeadLetters: "dead letters"}, want: []string{"destination", "destination"}},
		"no access":      {use: sink.Use{Destinations: []sink.Destination{{Name: fifo}}}, status: http.StatusForbidden, code: "ExpiredToken", want: []string{"connection"}},
		"denied":         {use: sink.Use{Destinations: []sink.Destination{{Name: fifo}}}, status: http.StatusForbidden, code: "AccessDenied", want: []string{"destination"}},
		"no service":     {status: http.StatusServiceUnavailable, code: "ServiceUnavailable", want: []string{"connection"}},
	} {
		server.SetFault(func(awstest.Request) *awstest.Answer {
			if tc.status == 0 {
				return nil
			}
			return &awstest.Answer{Status: tc.status, Code: tc.code}
		})
		var got []string
		for _, f := range sinktest.Inspect(sinktest.Context(t), t, testConfig(server.URL), tc.use) {
			if f.State != sink.Met {
				got = append(got, f.Condition)
				if f.Fix == "" || f.Found == "" {
					t.Errorf("%s: %+v", name, f)
				}
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: not met are %q, want %q", name, got, tc.want)
		}
		stops := slices.DeleteFunc(tc.want, func(condition string) bool { return condition == "order" })
		if got := sinktest.AtStart(sinktest.Context(t), t, testConfig(server.URL), tc.use); !slices.Equal(got, stops) {
			t.Errorf("%s: at the start, not met are %q, want %q", name, got, stops)
		}
	}
}
