package lane

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
)

// CheckEach names all missing destinations with the first error and its advice, and ends at any other error.
func TestCheckEach(t *testing.T) {
	missing := sink.NewError(sink.ErrMissing, "there is no such queue", "Create it.")
	b := NewBase(Options{Illegal: func(name string) string {
		if name == "" {
			return "is empty"
		}
		return ""
	}}, sinktest.NewJournal().Logger())
	for _, test := range []struct {
		destinations []string
		want, advice string
		class        error
	}{
		{[]string{"a", "b"}, "<nil>", "", nil},
		{[]string{"absent 1", "a", "absent 2"}, "there is no such queue: absent 1, absent 2", "Create it.", sink.ErrMissing},
		{[]string{"absent 1", "denied"}, "destination denied: no access to the broker", "", sink.ErrAccess},
		{[]string{"a", ""}, `destination "" is empty`, "", nil},
	} {
		err := b.CheckEach(t.Context(), test.destinations, func(_ context.Context, name string) error {
			switch name {
			case "absent 1", "absent 2":
				return missing
			case "denied":
				return sink.ErrAccess
			}
			return nil
		})
		if fmt.Sprint(err) != test.want || sink.AdviceOf(err) != test.advice || test.class != nil && !errors.Is(err, test.class) {
			t.Errorf("%q: %v; %s", test.destinations, err, sink.AdviceOf(err))
		}
	}
}
