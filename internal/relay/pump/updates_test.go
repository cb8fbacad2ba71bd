package pump

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// The relay counts dropped updates, and logs them at most once a minute per table.
func TestUpdatePolicyLogsDropsOnceAMinuteAndTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		u := newUpdatePolicy(encode.UpdateWarn, slog.New(slog.NewTextHandler(&log, nil)))
		rel := rows.Relation(catalog.Table{Schema: "public", Name: "outbox"})
		for range 3 {
			u.dropUpdate(t.Context(), rel)
		}
		u.dropUpdate(t.Context(), rows.Relation(catalog.Table{Schema: "public", Name: "other"}))
		bubble.Sleep(droppedLogInterval)
		u.dropUpdate(t.Context(), rel)
		for _, want := range []string{"table=public.outbox number=1", "table=public.other number=1", "table=public.outbox number=3"} {
			if strings.Count(log.String(), want) != 1 {
				t.Errorf("%q is not logged once:\n%s", want, log.String())
			}
		}
	})
}
