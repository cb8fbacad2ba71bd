package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// While a relay refills, /status, the command status and the metrics show how far it is, and the relay is ready.
func TestStatusOfARefill(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestRecoverDroppedSlot runs always")
	fake := kafkatest.Fake(t, kfake.NumBrokers(1))
	r := rig.NewOn(t, rig.DatabaseOn(t, pgtest.Start(t, pgserver.Config{})), fake.Cluster)
	deliverAndStop(t, r, 100, refillOnLoss...)
	dropSlot(t, r)
	const rows, window = 5000, 500
	r.Load.Giant(t.Context(), t, rows)
	fault := fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: r.Topic, Err: kerr.NotEnoughReplicas, Count: -1})
	began := time.Now()
	process := r.Run(t, append([]string{"--set", fmt.Sprint("sink.kafka.window.records=", window)}, refillOnLoss...)...)
	type progress struct {
		Since       time.Time
		Rows, Total int
	}
	refill := func() *progress {
		_, body := process.Ask(t, "status")
		var status struct{ Refill *progress }
		rig.Must(t, json.Unmarshal([]byte(body), &status))
		return status.Refill
	}
	var p *progress
	wait.For(t, "rows of the refill in /status", func() bool {
		p = refill()
		return p != nil && p.Rows > 0
	})
	if p.Rows >= p.Total || p.Total < rows || p.Total > rows+200 || p.Since.Before(began) || p.Since.After(time.Now()) {
		t.Errorf("the refill is %+v", p)
	}
	if code, body := process.Ask(t, "readyz"); code != http.StatusOK {
		t.Errorf("readyz: %d %s", code, body)
	}
	if _, body := process.Ask(t, "metrics"); !strings.Contains(body, "outbox_cdc_refilling{") || strings.Contains(body, `outbox_cdc_refilling{name="`+r.Slot+`"} 0`) {
		t.Errorf("the metrics do not show the refill:\n%s", body)
	}
	if out, _ := rig.Command(t, "status", "-c", r.Config, "--admin", process.AdminAt(t)); !strings.Contains(out, "░") {
		t.Errorf("status shows no progress:\n%s", out)
	}
	fault.Remove()
	wait.For(t, "the end of the refill in /status", func() bool { return refill() == nil })
	r.Arrived(t)
	process.Terminate(t)
}
