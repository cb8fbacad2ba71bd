package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A smallDisk is a file system of a few megabytes that holds a server's WAL.
type smallDisk struct {
	srv *pgserver.Server
	dir string
}

// onSmallDisk moves the WAL of srv to a new file system of the given size, and unmounts it when the test
// ends. If the test does not run as root, onSmallDisk skips it, or fails it where skips are not allowed.
func onSmallDisk(t *testing.T, srv *pgserver.Server, megabytes int) *smallDisk {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Missing(t, "only root may mount a file system")
	}
	rig.Must(t, srv.Shutdown(t.Context()))
	d := &smallDisk{srv: srv, dir: filepath.Join(srv.DataDir(), "pg_wal")}
	info, err := os.Stat(d.dir)
	rig.Must(t, err)
	was := d.dir + ".was"
	rig.Must(t, os.Rename(d.dir, was))
	rig.Must(t, os.Mkdir(d.dir, 0o700))
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
	rig.CopyDir(t, was+"/.", d.dir)
	rig.Must(t, srv.Restart(t.Context()))
	return d
}

func (d *smallDisk) mount(t *testing.T, options string, device ...string) ([]byte, error) {
	t.Helper()
	args := append([]string{"-t", "tmpfs", "-o", options}, append(device, d.dir)...)
	return exec.CommandContext(t.Context(), "mount", args...).CombinedOutput()
}

// grow enlarges the file system.
func (d *smallDisk) grow(t *testing.T, megabytes int) {
	t.Helper()
	if out, err := d.mount(t, fmt.Sprintf("remount,size=%dm", megabytes), "tmpfs"); err != nil {
		t.Fatalf("mount: %v\n%s", err, out)
	}
}

// While Kafka is unreachable, the WAL grows until the disk is full and the server panics. After the disk
// has space and Kafka is back, every committed row arrives once.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it fills a disk")
	pgtest.OldestAndNewest(t, func(t *testing.T, shared *pgserver.Server) {
		t.Parallel()
		srv := pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir, Settings: map[string]string{
			"min_wal_size": "32MB", "max_wal_size": "32MB", "wal_keep_size": "0",
		}})
		disk := onSmallDisk(t, srv, 90)
		sink := faultproxy.Start(t, "")
		fake := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ListenFn(sink.Listen))
		r := rig.NewOn(t, rig.DatabaseOn(t, srv), fake.Cluster)
		process := r.Run(t)
		rig.UnderLoad(t, r, func() {
			r.Progress(t)
			sink.Refuse()
			full := func() bool { return strings.Contains(srv.LogTail(), "No space left on device") }
			wait.For(t, "the disk to be full", func() bool {
				fillLog(t.Context(), r)
				return full()
			})
			disk.grow(t, 1000)
			rig.Must(t, srv.Immediate(t.Context()))
			rig.Must(t, srv.Restart(t.Context()))
			sink.Accept()
			r.Recover(t)
		})
		r.Arrived(t)
		process.Flat(t)
		process.Terminate(t)
		r.Settle(t, 0)
	})
}

// fillLog switches to a new WAL segment, if the server is running.
func fillLog(ctx context.Context, r *rig.Rig) {
	conn, err := pgx.Connect(ctx, r.DB.DSN)
	if err != nil {
		return
	}
	defer conn.Close(ctx)
	_, _ = conn.Exec(ctx, `SELECT pg_switch_wal(), txid_current()`)
}
