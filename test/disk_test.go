package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/internal/cutproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// A smallDisk is a file system of a few megabytes that holds the log of a server.
type smallDisk struct {
	srv *pgserver.Server
	dir string
}

// onSmallDisk moves the log of srv to a file system of its own with so many MB, which is
// unmounted when the test ends. Root may do that; where it may not, the test is skipped, or
// fails where a skip is not acceptable.
func onSmallDisk(t *testing.T, srv *pgserver.Server, megabytes int) *smallDisk {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Missing(t, "only root may mount a file system")
	}
	must(t, srv.Shutdown(t.Context()))
	d := &smallDisk{srv: srv, dir: filepath.Join(srv.DataDir(), "pg_wal")}
	info, err := os.Stat(d.dir)
	must(t, err)
	was := d.dir + ".was"
	must(t, os.Rename(d.dir, was))
	must(t, os.Mkdir(d.dir, 0o700))
	owner := info.Sys().(*syscall.Stat_t)
	out, err := d.mount(t, fmt.Sprintf("size=%dm,mode=700,uid=%d,gid=%d", megabytes, owner.Uid, owner.Gid), "tmpfs")
	if err != nil {
		need.Missing(t, "mount is refused: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = srv.Kill(ctx)
		if out, err := exec.CommandContext(ctx, "umount", d.dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	copyDir(t, was+"/.", d.dir)
	must(t, srv.Restart(t.Context()))
	return d
}

func (d *smallDisk) mount(t *testing.T, options string, device ...string) ([]byte, error) {
	t.Helper()
	args := append([]string{"-t", "tmpfs", "-o", options}, append(device, d.dir)...)
	return exec.CommandContext(t.Context(), "mount", args...).CombinedOutput()
}

// grow gives the file system more room.
func (d *smallDisk) grow(t *testing.T, megabytes int) {
	t.Helper()
	if out, err := d.mount(t, fmt.Sprintf("remount,size=%dm", megabytes), "tmpfs"); err != nil {
		t.Fatalf("mount: %v\n%s", err, out)
	}
}

// With the sink down the log grows until the disk is full, and the server panics. When there
// is room again and the sink is back, everything arrives that was committed, once.
func TestDiskFull(t *testing.T) {
	pgtest.OldestAndNewest(t, func(t *testing.T, shared *pgserver.Server) {
		t.Parallel()
		srv := pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir, Settings: map[string]string{
			"min_wal_size": "32MB", "max_wal_size": "32MB", "wal_keep_size": "0",
		}})
		disk := onSmallDisk(t, srv, 90)
		sink := cutproxy.Start(t, "")
		fake := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ListenFn(sink.Listen))
		r := newRig(t, pgtest.DatabaseOn(t, srv), fake.Cluster)
		process := r.run(t)
		underLoad(t, r, func() {
			r.progress(t)
			sink.Refuse()
			sink.Cut()
			full := func() bool { return strings.Contains(srv.LogTail(), "No space left on device") }
			waitFor(t, 30*time.Second, "the disk to be full", func() bool {
				r.fillLog(t.Context())
				return full()
			})
			disk.grow(t, 1000)
			must(t, srv.Immediate(t.Context()))
			must(t, srv.Restart(t.Context()))
			began := time.Now()
			must(t, sink.Accept())
			r.progress(t)
			t.Logf("%v from there being room and a sink to the last event", time.Since(began).Round(time.Millisecond))
		})
		r.arrived(t, 30*time.Second)
		process.flat(t)
		process.terminate(t)
		r.settle(t, 0)
	})
}

// fillLog begins a new segment of the log, if the server is there to do it.
func (r *rig) fillLog(ctx context.Context) {
	conn, err := pgx.Connect(ctx, r.db.DSN)
	if err != nil {
		return
	}
	defer conn.Close(ctx)
	_, _ = conn.Exec(ctx, `SELECT pg_switch_wal(), txid_current()`)
}
