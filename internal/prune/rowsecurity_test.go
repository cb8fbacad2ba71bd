package prune

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// Prune does not take the rows that policies show for all rows: it names the policies and deletes nothing.
func TestRowSecurity(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		for _, partitioned := range []bool{false, true} {
			r := newRig(t, srv, "", partitioned)
			r.consume(t, r.Name)
			r.insert(t, 24*200, 100)
			leaf := map[bool]string{false: "outbox", true: "outbox_default"}[partitioned]
			r.role(t, `GRANT SELECT, DELETE ON `+leaf+` TO %s`)
			r.Exec(t, `ALTER TABLE `+leaf+` ENABLE ROW LEVEL SECURITY`)
			r.cfg.OlderThan, r.cfg.Days = 0, 0
			if partitioned {
				r.cfg.OlderThan = time.Hour
				r.Exec(t, `ALTER FUNCTION outbox_create_partitions(int) SECURITY DEFINER`)
			}
			for _, policy := range []string{"", "tenant"} {
				if policy != "" {
					r.Exec(t, `CREATE POLICY tenant ON `+leaf+` USING (aggregateid = '1')`)
				}
				for _, r.cfg.DryRun = range []bool{true, false} {
					_, err := Run(t.Context(), r.cfg)
					hidden, ok := errors.AsType[*catalog.HiddenError](err)
					if !ok || !errors.Is(err, replication.ErrAccess) || hidden.Table != "public."+leaf || strings.Join(hidden.Policies, "") != policy {
						t.Errorf("%v", err)
					}
				}
			}
			r.expectRows(t, 100)
			r.Exec(t, fmt.Sprintf(`ALTER ROLE %s BYPASSRLS`, r.cfg.Source.User))
			if got := r.prune(t); got.Deleted != 100 {
				t.Errorf("with BYPASSRLS: %+v", got)
			}
		}
	})
}

// If row-level security is enabled while prune runs, Postgres returns an error in place of hiding rows.
func TestRowSecurityMeanwhile(t *testing.T) {
	need.FullRun(t, "TestRowSecurity runs always")
	t.Parallel()
	r := newRig(t, pgtest.Server(t), "", false)
	r.insert(t, 100, 10)
	c := r.consume(t, r.Name)
	c.waits.Store(true)
	r.role(t, `GRANT SELECT, DELETE ON outbox TO %s`)
	run := r.start(t.Context())
	r.marked(t)
	r.Exec(t, `ALTER TABLE outbox ENABLE ROW LEVEL SECURITY; CREATE POLICY tenant ON outbox USING (aggregateid = '1')`)
	c.waits.Store(false)
	<-run.done
	if !replication.HidesRows(run.err) {
		t.Errorf("error = %v", run.err)
	}
	r.expectRows(t, 10)
}
