package catalog

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// look returns the n-th of a series of healthy catalogs, 10 s and 1 MB of WAL apart.
func look(n int) *State {
	return &State{
		ServerVersion: 180001, SystemID: "7", Database: "app", WALLevel: "logical", Encoding: "UTF8",
		PublicationName: "pub", SlotName: "slot", MaxSlotWALKeepSize: -1,
		ReadAt: time.Date(2030, 1, 1, 12, 0, 10*n, 0, time.UTC), WALEnd: 0x1000000 + 0x100000*pglogrepl.LSN(n),
		Publication: &Publication{
			oid: 100, version: 700, Name: "pub", Insert: true, ViaRoot: true,
			members: []member{{oid: 200, table: 300, schema: "public", name: "outbox"}},
			Tables:  []Table{outboxTable(300)},
		},
		Outboxes: []Outbox{outboxOf(300)},
		Slot: &Slot{
			Name: "slot", Plugin: plugin, Database: "app", WALStatus: "reserved", Active: true,
			RestartLSN: 0x1000000 + 0x100000*pglogrepl.LSN(n) - 0x10000, ConfirmedFlushLSN: 0x1000000 + 0x100000*pglogrepl.LSN(n),
		},
	}
}

// outboxOf returns the outbox table with this OID. It is partitioned if it has partitions.
func outboxOf(oid uint32, partitions ...uint32) Outbox {
	o := Outbox{Configured: "outbox", Parts: []Part{{OID: oid, Schema: "public", Name: "outbox", Kind: ordinaryTable, Persistence: "p", refillable: true}}}
	for _, p := range partitions {
		o.Parts[0].Kind = partitionedTable
		o.Parts = append(o.Parts, Part{OID: p, Schema: "public", Name: fmt.Sprint("p", p), Kind: ordinaryTable, Persistence: "p", ancestors: []uint32{oid}})
	}
	return o
}

func outboxTable(oid uint32) Table {
	return Table{OID: oid, Schema: "public", Name: "outbox", Columns: []Column{{Name: "id", TypeName: "uuid"}, {Name: "payload", TypeName: "jsonb"}}}
}

// A start, check and status may come long after the loss: what the slot has confirmed by then is not its place.
func TestLossIsNotAtThePresentPosition(t *testing.T) {
	c := look(1)
	c.Publication.members, c.Publication.Tables = nil, []Table{{OID: 301, Schema: "app", Name: "events"}}
	err := c.Verify()
	if !errors.Is(err, replication.ErrPublication) || strings.Contains(err.Error(), c.Slot.ConfirmedFlushLSN.String()) || !strings.Contains(err.Error(), InstructRecover) {
		t.Errorf("%v", err)
	}
}

// An operator may find a renamed table among the others of the publication, but never a partition, which has some of its rows only.
func TestOthersOfAMissingTable(t *testing.T) {
	c := look(1)
	c.Outboxes = []Outbox{{Configured: "outbox"}}
	c.Publication.Tables = []Table{{OID: 301, Schema: "app", Name: "audit"}}
	for oid := range uint32(7) {
		c.Publication.Tables = append(c.Publication.Tables, Table{OID: 400 + oid, Schema: "app", Name: fmt.Sprint("p", oid), partition: true, root: `"app"."events"`})
	}
	if err := c.Verify(); err == nil || !strings.Contains(err.Error(), `"pub" has "app"."audit", "app"."events": if the table is there`) {
		t.Errorf("%v", err)
	}
	for oid := range uint32(5) {
		c.Publication.Tables = append(c.Publication.Tables, Table{OID: 500 + oid, Schema: "app", Name: fmt.Sprint("t", oid)})
	}
	if err := c.Verify(); err == nil || !strings.Contains(err.Error(), `"app"."t2" and 2 more: if`) {
		t.Errorf("%v", err)
	}
}

// A change between two looks causes an error, a warning, or nothing.
func TestHistory(t *testing.T) {
	type change func(p *Publication, c *State)
	partitions := func(oids ...uint32) change {
		return func(p *Publication, c *State) {
			p.ViaRoot, p.Tables, c.Outboxes = false, nil, []Outbox{outboxOf(300, oids...)}
			for _, oid := range oids {
				p.Tables = append(p.Tables, Table{OID: oid, Schema: "public", Name: fmt.Sprint("p", oid), partition: true})
			}
		}
	}
	wholeSchema := func(oid uint32) change {
		return func(p *Publication, c *State) {
			p.schemas, p.members, p.Tables, c.Outboxes = map[string]uint32{"public": 900}, nil, []Table{outboxTable(oid)}, []Outbox{outboxOf(oid)}
		}
	}
	neighbour := func(p *Publication, _ *State) {
		p.members = append(p.members, member{oid: 201, table: 301, schema: "app", name: "events"})
		p.Tables = append(p.Tables, Table{OID: 301, Schema: "app", Name: "events"})
	}
	events := Outbox{Configured: "app.events", Parts: []Part{{OID: 301, Schema: "app", Name: "events", Kind: ordinaryTable, Persistence: "p", refillable: true}}}
	configured := func(_ *Publication, c *State) { c.Outboxes = append(c.Outboxes, events) }
	second := func(p *Publication, c *State) {
		neighbour(p, c)
		configured(p, c)
	}
	replaced := func(born bool) change {
		return func(p *Publication, c *State) {
			old, successor := p.members[0], p.Tables[0]
			p.members = []member{{oid: 201, table: 301, schema: "public", name: "outbox", born: born}, old}
			p.members[1].name, p.Tables[0].Name, successor.OID = "outbox_old", "outbox_old", 301
			p.Tables = append(p.Tables, successor)
			c.Outboxes = []Outbox{outboxOf(301)}
		}
	}
	for name, tc := range map[string]struct {
		before, after change
		err           error
		says          []string // parts of the error, or else of the warnings, one each
	}{
		"nothing":                {after: func(*Publication, *State) {}},
		"nothing in two tables":  {before: second, after: second},
		"publication dropped":    {after: func(_ *Publication, c *State) { c.Publication = nil }, err: replication.ErrPublication, says: []string{`"pub"`, "0/1000000, 12:00:00Z", "0/1100000, 12:00:10Z", "setup"}},
		"publication re-created": {after: func(p *Publication, _ *State) { p.oid, p.version, p.members[0].oid = 101, 701, 202 }, err: replication.ErrPublication, says: []string{`"pub" has changed: it was dropped and re-created`, InstructRecover}},
		"anew without the table": {after: func(p *Publication, _ *State) { p.oid, p.version, p.members, p.Tables = 101, 701, nil, nil }, err: replication.ErrPublication, says: []string{"no table"}},
		"no inserts":             {after: func(p *Publication, _ *State) { p.Insert, p.version = false, 701 }, err: replication.ErrPublication, says: []string{"insert"}},
		"no inserts for a while": {after: func(p *Publication, _ *State) { p.version = 701 }, err: replication.ErrPublication, says: []string{"altered and restored", InstructRecover, "0/1000000"}},
		"updates":                {after: func(p *Publication, _ *State) { p.Update, p.version = true, 701 }, says: []string{"UPDATEs"}},
		"updates no more":        {before: func(p *Publication, _ *State) { p.Update = true }, after: func(p *Publication, _ *State) { p.version = 701 }},
		"deletes":                {after: func(p *Publication, _ *State) { p.Delete = true }, says: []string{"DELETEs"}},
		"truncates":              {after: func(p *Publication, _ *State) { p.Truncate = true }, says: []string{"TRUNCATEs"}},
		"removed":                {after: func(p *Publication, _ *State) { p.members, p.Tables = nil, nil }, err: replication.ErrPublication, says: []string{"no table"}},
		"one of two removed":     {before: second, after: configured, err: replication.ErrPublication, says: []string{`"app"."events"`, "0/1100000"}},
		"removed and added":      {after: func(p *Publication, _ *State) { p.members[0].oid = 201 }, err: replication.ErrPublication, says: []string{"public.outbox", "added again"}},
		"recreated and added": {after: func(p *Publication, c *State) {
			p.members[0] = member{oid: 201, table: 301, schema: "public", name: "outbox"}
			p.Tables[0].OID, c.Outboxes[0].Parts[0].OID = 301, 301
		}, err: replication.ErrPublication, says: []string{"public.outbox was dropped or renamed, and the one that has its name now"}},
		"detached while we read": {before: func(p *Publication, _ *State) {
			p.Tables = append(p.Tables, Table{OID: 301, Schema: "public", Name: "p1"})
		}, after: func(*Publication, *State) {}},
		"recreated in a schema": {before: wholeSchema(300), after: wholeSchema(301), says: []string{"re-created"}},
		"dropped in a schema": {before: func(p *Publication, c *State) {
			second(p, c)
			p.schemas, p.members = map[string]uint32{"public": 900, "app": 901}, nil
		}, after: func(p *Publication, c *State) {
			wholeSchema(300)(p, c)
			c.Outboxes = append(c.Outboxes, Outbox{Configured: "app.events"})
		}, err: replication.ErrPublication, says: []string{`"app.events" does not exist`}},
		"a neighbour":           {before: neighbour, after: neighbour},
		"neighbour removed":     {before: neighbour, after: func(*Publication, *State) {}},
		"neighbour added again": {before: neighbour, after: func(p *Publication, c *State) { neighbour(p, c); p.members[1].oid = 202 }},
		"replaced": {after: func(p *Publication, c *State) {
			p.members[0].name, p.Tables[0].Name = "outbox_old", "outbox_old"
			c.Outboxes = []Outbox{outboxOf(301)}
		}, err: replication.ErrPublication, says: []string{`ADD TABLE "public"."outbox"`, `"public"."outbox_old"`, InstructRecover, "0/1000000"}},
		"replaced at once": {after: replaced(true), says: []string{"renamed from public.outbox, which is another table now"}},
		"replaced later":   {after: replaced(false), err: replication.ErrPublication, says: []string{"public.outbox was dropped or renamed, and the one that has its name now", InstructRecover}},
		"a child by inheritance": {after: func(_ *Publication, c *State) {
			c.Outboxes[0].Parts = append(c.Outboxes[0].Parts, Part{OID: 302, Schema: "public", Name: "outbox_2027", Kind: ordinaryTable, Persistence: "p"})
		}, err: replication.ErrPublication, says: []string{`ADD TABLE "public"."outbox_2027"`, "0/1000000"}},
		"renamed":           {after: func(p *Publication, _ *State) { p.members[0].name, p.Tables[0].Name = "events", "events" }, says: []string{"renamed from public.outbox"}},
		"moved to a schema": {after: func(p *Publication, _ *State) { p.members[0].schema, p.Tables[0].Schema = "app", "app" }, says: []string{"renamed from public.outbox"}},
		"renamed, with partitions published": {
			before: func(p *Publication, c *State) { partitions(400)(p, c); p.AllTables, p.members = true, nil },
			after: func(p *Publication, c *State) {
				partitions(400)(p, c)
				p.AllTables, p.members, c.Outboxes[0].Parts[0].Name = true, nil, "events"
			},
			says: []string{"renamed from public.outbox"},
		},
		"moved out of a published schema": {
			before: func(p *Publication, c *State) { wholeSchema(300)(p, c); c.Outboxes = []Outbox{outboxOf(300, 400)} },
			after: func(p *Publication, c *State) {
				partitions(400)(p, c)
				p.ViaRoot, p.schemas, p.members, c.Outboxes[0].Parts[0].Schema = true, map[string]uint32{"public": 900}, nil, "app"
			},
			err: replication.ErrPublication, says: []string{"public.outbox, which is app.outbox now, is no longer", `ADD TABLE "app"."outbox"`, InstructRecover},
		},
		"row filter": {after: func(p *Publication, _ *State) {
			p.members[0].oid, p.Tables[0].RowFilter, p.Tables[0].Republish = 201, "(id > 5)", "BEGIN; …; COMMIT"
		}, err: replication.ErrPublication, says: []string{"public.outbox has another row filter", "unless you want it, run BEGIN; …; COMMIT. Rows", "start the relay once with outbox-cdc run --accept-gap", InstructRecover}},
		"column hidden": {after: func(p *Publication, _ *State) {
			p.members[0].oid, p.members[0].columns, p.Tables[0].Columns = 201, "1", p.Tables[0].Columns[:1]
		}, err: replication.ErrPublication, says: []string{"public.outbox has another row filter or column list"}},
		"column dropped":         {after: func(p *Publication, _ *State) { p.Tables[0].Columns = p.Tables[0].Columns[:1] }, says: []string{`"payload" is no longer published`}},
		"column of another type": {after: func(p *Publication, _ *State) { p.Tables[0].Columns[1].TypeName = "text" }, says: []string{"is now text and was jsonb"}},
		"column added": {after: func(p *Publication, _ *State) {
			p.Tables[0].Columns = append(p.Tables[0].Columns, Column{Name: "tenant"})
		}},
		"partition attached":     {before: partitions(400, 401), after: partitions(400, 401, 402)},
		"partition dropped":      {before: partitions(400, 401), after: partitions(401)},
		"root instead of leaves": {before: partitions(400), after: func(*Publication, *State) {}, says: []string{"publish_via_partition_root is now true"}},
		"leaves of all tables":   {before: wholeSchema(300), after: func(p *Publication, c *State) { partitions(400)(p, c); p.members = nil }, says: []string{"publish_via_partition_root is now false"}},
		"slot dropped":           {after: func(_ *Publication, c *State) { c.Slot = nil }, err: replication.ErrSlotMissing, says: []string{`"slot"`, "12:00:10Z"}},
		"slot lost":              {after: func(_ *Publication, c *State) { c.Slot.WALStatus = "lost" }, err: replication.ErrSlotLost, says: []string{"wal_status is lost", "from 0/1100000 to 0/1100000"}},
		"slot invalidated": {after: func(_ *Publication, c *State) {
			c.Slot.WALStatus, c.Slot.InvalidationReason, c.Slot.InactiveSince = "lost", "idle_timeout", c.ReadAt
		}, err: replication.ErrSlotLost, says: []string{"idle_timeout, inactive since 2030-01-01T12:00:10Z"}},
		"idle timeout":              {after: func(_ *Publication, c *State) { c.IdleSlotTimeout = time.Hour }, says: []string{"idle_replication_slot_timeout is 1h0m0s"}},
		"another cluster":           {after: func(p *Publication, c *State) { c.SystemID, p.members[0].oid = "8", 9 }},
		"what only a start refuses": {after: func(_ *Publication, c *State) { c.WALLevel, c.Slot.TwoPhase = "replica", true }},
	} {
		t.Run(name, func(t *testing.T) {
			first, now, later := look(0), look(1), look(2)
			if tc.before != nil {
				tc.before(first.Publication, first)
			}
			tc.after(now.Publication, now)
			tc.after(later.Publication, later)
			var h History
			if warnings, err := h.Look(first); len(warnings) > 0 || err != nil {
				t.Fatalf("first look: %v, %v", warnings, err)
			}
			warnings, err := h.Look(now)
			if !errors.Is(err, tc.err) {
				t.Fatalf("Look: %v, want %v", err, tc.err)
			}
			if tc.err != nil {
				for _, want := range tc.says {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q is missing in: %v", want, err)
					}
				}
				return
			}
			if len(warnings) != len(tc.says) {
				t.Fatalf("warnings %v, want %q", warnings, tc.says)
			}
			for i, want := range tc.says {
				if w := warnings[i]; !strings.Contains(w.Text, want) || w.Object == "" || w.Over {
					t.Errorf("warning %+v, want %q", w, want)
				}
			}
			if warnings, err := h.Look(later); len(warnings) > 0 || err != nil {
				t.Errorf("the same state again: %v, %v", warnings, err)
			}
		})
	}
}

// The first look has nothing to compare with. It still warns of risks for the slot, and detects an invalidated
// slot.
func TestFirstLook(t *testing.T) {
	var h History
	c := look(0)
	c.IdleSlotTimeout, c.Slot.WALStatus = 24*time.Hour, "extended"
	warnings, err := h.Look(c)
	if len(warnings) != 2 || err != nil {
		t.Errorf("%v, %v", warnings, err)
	}
	h = History{}
	c.Slot.WALStatus = "lost"
	if _, err := h.Look(c); !errors.Is(err, replication.ErrSlotLost) {
		t.Errorf("lost: %v", err)
	}
}

// The watcher warns of the risk for the slot once per state, with the WAL and the time that are left.
func TestRetention(t *testing.T) {
	const mb = 1 << 20
	unlimited := func(status string, held int64) func(*State) {
		return func(c *State) { c.Slot.WALStatus, c.Slot.RestartLSN = status, c.WALEnd-pglogrepl.LSN(held) }
	}
	limited := func(held, safe int64) func(*State) {
		return func(c *State) {
			c.MaxSlotWALKeepSize, c.Slot.SafeWALSize = 1000*mb, &safe
			c.Slot.RestartLSN, c.Slot.ConfirmedFlushLSN = c.WALEnd-pglogrepl.LSN(held), c.WALEnd-pglogrepl.LSN(held)
			if safe <= 0 {
				c.Slot.WALStatus = "unreserved"
			}
		}
	}
	steps := func(all ...func(*State)) []func(*State) { return all }
	for name, tc := range map[string]struct {
		looks []func(*State)
		want  []string // a warning for each look; empty: none
	}{
		"plenty": {steps(limited(10*mb, 990*mb), limited(11*mb, 989*mb)), []string{"", ""}},
		"within the hour": {
			steps(limited(10*mb, 990*mb), limited(300*mb, 700*mb), limited(310*mb, 690*mb)),
			[]string{"", "after 700 MB more WAL, Postgres may invalidate the slot (max_slot_wal_keep_size is 1000 MB), in about 24 s at the current rate", ""},
		},
		"running out": {
			steps(limited(100*mb, 900*mb), limited(600*mb, 400*mb), limited(700*mb, 300*mb), limited(901*mb, 99*mb), limited(1001*mb, -mb), limited(1002*mb, -2*mb)),
			[]string{
				"",
				"it retains 600 MB of WAL, from 0/DB900000 on; after 400 MB more WAL, Postgres may invalidate the slot (max_slot_wal_keep_size is 1000 MB), in about 8 s at the current rate; the confirmed position is 0/DB900000: the relay still reads the WAL after it, or the broker does not acknowledge its rows, which status says",
				"",
				"after 99 MB more WAL, Postgres may invalidate the slot (max_slot_wal_keep_size is 1000 MB), in about 3.7 s",
				"Postgres may invalidate the slot at the next checkpoint",
				"",
			},
		},
		"stays short": {steps(limited(600*mb, 400*mb), limited(500*mb, 400*mb)), []string{"max_slot_wal_keep_size is 1000 MB); the confirmed position is 0/", ""}},
		"recovers and comes again": {
			steps(limited(600*mb, 400*mb), limited(460*mb, 540*mb), limited(600*mb, 400*mb), limited(10*mb, 990*mb), limited(600*mb, 400*mb)),
			[]string{"600 MB", "", "", "over: it retains 10 MB", "600 MB"},
		},
		"disk fills": {
			steps(unlimited("reserved", 10*mb), unlimited("extended", 2000*mb), unlimited("extended", 2001*mb), unlimited("reserved", 500<<10)),
			[]string{"", "a full disk stops Postgres; the confirmed position is 1/", "", "over: it retains 500 kB"},
		},
		"held by a transaction": {steps(unlimited("extended", 2000*mb)), []string{"or for a long transaction"}},
	} {
		t.Run(name, func(t *testing.T) {
			var h History
			for i, change := range tc.looks {
				c := look(i)
				c.WALEnd += 0x1_00000000 // room for the retained WAL
				c.Slot.ConfirmedFlushLSN = c.WALEnd
				change(c)
				warnings, err := h.Look(c)
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				for _, w := range warnings {
					got += w.Text
					if w.Over {
						got = "over: " + got
					}
				}
				if (got == "") != (tc.want[i] == "") || !strings.Contains(got, tc.want[i]) {
					t.Errorf("look %d: %q, want %q", i, got, tc.want[i])
				}
			}
		})
	}
}
