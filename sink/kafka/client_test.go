package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestYoungBroker: one that has just started says so for a while, which is worth a warning
// only if it lasts.
func TestYoungBroker(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		fault := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.CoordinatorLoadInProgress, Count: -1})
		j := new(journal)
		opened := make(chan *client)
		go func() { opened <- l.client(Config{}, j.logger()) }()
		time.Sleep(warnAfter - time.Second)
		if s := j.String(); strings.Count(s, "level=INFO msg=\"kafka is not ready yet\"") != 1 || strings.Count(s, "\n") != 1 {
			l.Errorf("log: %s", s)
		}
		time.Sleep(time.Minute)
		if s := j.String(); strings.Count(s, "level=WARN msg=\"kafka not reached yet\"") != 1 || strings.Count(s, "\n") != 2 {
			l.Errorf("log: %s", s)
		}
		fault.Remove()
		<-opened
	})
}
