package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// A cgroup limits the memory of its processes. The kernel kills a process that exceeds the limit.
type cgroup struct{ dir, peakFile string }

// limitedTo creates a cgroup with the given memory limit and without swap. It uses cgroup v1 or v2,
// whichever the machine has. See https://docs.kernel.org/admin-guide/cgroup-v2.html#memory and
// https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
func limitedTo(t *testing.T, mb int) *cgroup {
	t.Helper()
	const root = "/sys/fs/cgroup"
	name, limit := fmt.Sprintf("outbox-cdc-test-%d", os.Getpid()), strconv.Itoa(mb<<20)
	g, settings := &cgroup{filepath.Join(root, name), "memory.peak"}, map[string]string{"memory.max": limit, "memory.swap.max": "0"}
	if _, err := os.Stat(filepath.Join(root, "memory")); err == nil {
		g, settings = &cgroup{filepath.Join(root, "memory", name), "memory.max_usage_in_bytes"}, map[string]string{"memory.limit_in_bytes": limit, "memory.swappiness": "0"}
	} else if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0o600); err != nil {
		need.Missing(t, "no cgroup can be made: %v", err)
	}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		need.Missing(t, "no cgroup can be made: %v", err)
	}
	t.Cleanup(func() { rig.Must(t, os.Remove(g.dir)) })
	for file, value := range settings {
		rig.Must(t, os.WriteFile(filepath.Join(g.dir, file), []byte(value), 0o600))
	}
	return g
}

// start runs the binary in the cgroup.
func (g *cgroup) start(t *testing.T, args ...string) *rig.Process {
	t.Helper()
	const enter = `echo $$ >"$0/cgroup.procs" && exec "$@"`
	return rig.StartProgram(t, "sh", append([]string{"-c", enter, g.dir, rig.Binary(t)}, args...)...)
}

// peak returns the cgroup's highest memory usage so far, in MB, or 0 if the kernel does not report it.
func (g *cgroup) peak(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, g.peakFile))
	if errors.Is(err, os.ErrNotExist) {
		return 0 // kernels before 5.19
	}
	rig.Must(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	rig.Must(t, err)
	return n >> 20
}

// The relay stays within its memory limit during a giant transaction, and also while the broker is frozen
// and rows of 64 kB fill the window.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it measures memory")
	g := limitedTo(t, rig.MaxResident)
	r, _, broker := rig.NewOwnBroker(t)
	process := g.start(t, "run", "-c", r.Config)
	process.Logged(t, "streaming")
	r.Load.Giant(t.Context(), t, rig.Rows(t))
	r.Arrived(t)
	r.Settle(t, 0)
	t.Logf("a giant transaction: at most %d MB", g.peak(t))

	const rows = 1000
	insert := func() {
		r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			SELECT gen_random_uuid(), 'order', 'large-' || n % 100, 'T', jsonb_build_object('pad', repeat('x', 65536))
			FROM generate_series(1, $1::int) n`, rows)
	}
	before := r.Collector.Count()
	insert()
	rig.Must(t, broker.Pause())
	insert()
	<-time.After(3 * time.Second) // the window fills
	rig.Must(t, broker.Resume())
	r.Confirmed(t)
	t.Logf("rows of 64 kB: at most %d MB, resident %+v", g.peak(t), process.Memory(t))
	process.Terminate(t)
	rig.Must(t, r.Collector.CatchUp(t.Context()))
	if got := r.Collector.Count() - before; got != 2*rows {
		t.Errorf("%d records, want %d", got, 2*rows)
	}
}
