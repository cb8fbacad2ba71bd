package replication

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/pgserver"
	"github.com/outbox-cdc/outbox-cdc/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func cpu(who int) time.Duration {
	var ru syscall.Rusage
	_ = syscall.Getrusage(who, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func TestZZDrain(t *testing.T) {
	srv := pgtest.Start(t, pgserver.Config{Major: 18})
	db := pgtest.DatabaseOn(t, srv)
	db.Exec(t, `CREATE TABLE outbox (id uuid primary key default gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload jsonb)`)
	db.Exec(t, `CREATE PUBLICATION pub FOR TABLE outbox WITH (publish='insert')`)
	for _, s := range []string{"t1","t2","t3","t4","t5","t6","t7","t8","t9","t10","t11","t12","t13","t14","t15","t16","t17","t18"} {
		db.Exec(t, `SELECT pg_create_logical_replication_slot('`+s+`', 'pgoutput')`)
	}
	n := 300000
	db.Exec(t, fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP INSERT INTO outbox (aggregatetype, aggregateid, type, payload) SELECT 'order', (i*10+g)::text, 'created', jsonb_build_object('k', repeat('x', 380)) FROM generate_series(1,10) g; COMMIT; END LOOP; END $$`, n/10))
	end := pgtest.QueryRow[string](t, db, "SELECT pg_current_wal_lsn()::text")
	_ = filepath.Join
	recv := func(slot string) {
		c0 := cpu(syscall.RUSAGE_CHILDREN)
		t0 := time.Now()
		cmd := exec.Command("/usr/bin/pg_recvlogical", "-d", db.DSN, "-S", slot, "--start", "-E", end, "-o", "proto_version=1", "-o", "publication_names=pub", "-f", "/dev/null", "--no-loop", "-F", "0")
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			t.Log(err)
		}
		d := time.Since(t0)
		t.Logf("pg_recvlogical %s: %s, %.0f rows/s, cpu %s", slot, d, float64(n)/d.Seconds(), cpu(syscall.RUSAGE_CHILDREN)-c0)
	}
	ours := func(slot string) {
		stream, err := Open(t.Context(), Config{Conn: db.Config(t), Publication: "pub", Slot: slot}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		c0 := cpu(syscall.RUSAGE_SELF)
		t0 := time.Now()
		if err := stream.Start(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		out := make(chan *Batch, 2)
		ended := make(chan error, 1)
		go func() { ended <- stream.Run(ctx, func() pglogrepl.LSN { return 0 }, out) }()
		rows, batches := 0, 0
		for rows < n {
			b := <-out
			batches++
			for _, m := range b.Messages {
				if w, ok := m.(*WALData); ok && w.Data[0] == 'I' {
					rows++
				}
			}
			b.Release()
		}
		d := time.Since(t0)
		t.Logf("ours %s: %s, %.0f rows/s, cpu %s, %.1f rows/batch", slot, d, float64(n)/d.Seconds(), cpu(syscall.RUSAGE_SELF)-c0, float64(rows)/float64(batches))
		cancel()
		<-ended
		if err := stream.Close(t.Context(), 0); err != nil {
			t.Error(err)
		}
	}
	k := 0
	next := func() string { k++; return fmt.Sprintf("t%d", k) }
	for range 3 {
		recv(next())
		for _, v := range []struct{n string; l bool; ln int; d time.Duration}{{"none+1ms", false, 0, time.Millisecond}, {"64K+1ms", true, 65536, time.Millisecond}, {"64K+0", true, 65536, 0}, {"32K+0", true, 32768, 0},{"128K+0", true, 131072, 0}} {
			hackLow, lowN, hackD = v.l, v.ln, v.d
			t.Log(v.n)
			ours(next())
		}
	}
}
