package audit

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// judge compares the rows with their records, key by key, and counts the differences. The ledger cannot be used
// to look up rows any more.
func (l *ledger) judge() (findings []Finding) {
	l.index = nil
	rows := make([]uint32, len(l.rows))
	for i := range rows {
		rows[i] = uint32(i)
	}
	slices.SortFunc(rows, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(l.rows[a].place, l.rows[b].place), cmp.Compare(a, b))
	})
	slices.SortFunc(l.seen, func(a, b sighting) int {
		return cmp.Or(cmp.Compare(l.rows[a.row].place, l.rows[b.row].place), cmp.Compare(a.part, b.part), cmp.Compare(a.offset, b.offset))
	})
	k := keyJudge{ledger: l, findings: &findings, place: make(map[uint32]int64)}
	for seen := l.seen; len(rows) > 0; {
		place := l.rows[rows[0]].place
		other := func(n uint32) bool { return l.rows[n].place != place }
		r := end(len(rows), func(i int) bool { return other(rows[i]) })
		s := end(len(seen), func(i int) bool { return other(seen[i].row) })
		k.judge(rows[:r], seen[:s])
		rows, seen = rows[r:], seen[s:]
	}
	return findings
}

// end returns the first i below n for which stop holds, or n.
func end(n int, stop func(i int) bool) int {
	for i := range n {
		if stop(i) {
			return i
		}
	}
	return n
}

// A keyJudge judges the rows of one key at a time.
type keyJudge struct {
	*ledger
	findings *[]Finding
	numbered []uint32         // rows that have a record or must have one, in the order they must come in
	place    map[uint32]int64 // the number of each, from 1
}

// judge judges the rows of a key, in the order of the table, and their records by partition and offset.
func (k *keyJudge) judge(rows []uint32, seen []sighting) {
	k.numbered = k.numbered[:0]
	for all := rows; len(all) > 0; {
		table := k.tableOf(all[0])
		n := end(len(all), func(i int) bool { return k.tableOf(all[i]) != table })
		k.number(all[:n], seen, slices.ContainsFunc(seen, func(s sighting) bool { return k.tableOf(s.row) != table }))
		all = all[n:]
	}
	if !k.ordered {
		k.sortByCommit(seen)
	}
	k.noteAltered(seen)
	checker, own := k.check(seen), k.rows[rows[0]].topic
	if counts := checker.Counts(); counts.OutOfOrder > 0 && k.ordered {
		inTable := slices.Clone(k.numbered)
		inOne := counts.Misplaced == 0 // all records of the key are in one partition
		if k.sortByCommit(seen) {
			if again := k.check(seen); again.Counts().OutOfOrder < counts.OutOfOrder {
				checker = again
				k.topics[own].Concurrent++
			} else {
				k.numbered = inTable
			}
		} else if inOne && k.tableOf(rows[0]) != k.tableOf(rows[len(rows)-1]) {
			k.countByTable(own, seen)
			return
		}
	}
	k.count(checker, own, seen)
}

// number counts the rows of a key in one table by what became of them, and numbers those that have a record or must have one.
// others says that rows of other tables have records of the key, which may be earlier or later.
func (k *keyJudge) number(rows []uint32, seen []sighting, others bool) {
	last := -1 // the last row whose record is there
	for i, n := range rows {
		if k.flags[n]&hasRecord != 0 {
			last = i
		}
	}
	began := false // a record of an earlier row is there
	for i, n := range rows {
		t := k.topics[k.rows[n].topic]
		t.Rows++
		switch flags := k.flags[n]; {
		case flags&hasRecord != 0:
			began = true
			k.numbered = append(k.numbered, n)
		case flags&(hasResent|hasAltered) != 0:
		case flags&hasDeadLetter != 0:
			t.Unsent++
		case flags&due == 0:
			t.Unconfirmed++
		case k.deadHidden:
			t.Hidden++
		case flags&unroutable != 0:
			k.miss(t, n)
		case t.compacted && (i < last || others || !k.ordered), (!began || !k.ordered) && k.mayHaveExpired(n, seen):
			t.Expired++
		case (i > last || !k.ordered) && k.mayBeHidden(n, seen):
			t.Hidden++
		default:
			k.miss(t, n)
		}
		if k.flags[n]&hasDeadLetter != 0 {
			t.DeadLetters++
		}
	}
}

// countByTable is count for a key with rows in several tables, of which nothing says in which order they were committed. All its
// records are in one partition.
func (k *keyJudge) countByTable(own uint16, seen []sighting) {
	k.byTable = true
	for all := k.numbered; len(all) > 0; all = all[len(k.numbered):] {
		table := k.tableOf(all[0])
		k.numbered = all[:end(len(all), func(i int) bool { return k.tableOf(all[i]) != table })]
		var ofTable []sighting
		for _, s := range seen {
			if k.tableOf(s.row) == table {
				ofTable = append(ofTable, s)
			}
		}
		k.count(k.check(ofTable), own, ofTable)
	}
}

// noteAltered counts the records that differ from their rows.
func (k *keyJudge) noteAltered(seen []sighting) {
	for i := range seen {
		s := &seen[i]
		differs := s.flags &^ isLSN
		if differs == 0 {
			continue
		}
		p, offset := &k.parts[s.part], k.offset(s)
		k.topics[k.rows[s.row].topic].Altered++
		k.note(k.findings, p.topic, Finding{Kind: Altered, Partition: &p.number, Offset: &offset, Detail: damage(differs), Table: k.tables[k.tableOf(s.row)], id: k.rows[s.row].id})
	}
}

// offset returns the offset of a record in its partition.
func (k *keyJudge) offset(s *sighting) int64 { return k.parts[s.part].begin + int64(s.offset) }

// miss counts a missing row.
func (k *keyJudge) miss(t *topicLedger, n uint32) {
	t.Missing++
	k.numbered = append(k.numbered, n)
	f := Finding{Kind: Missing, Detail: "no record of the row is in the topic", Table: k.tables[k.tableOf(n)], id: k.rows[n].id}
	switch flags := k.flags[n]; {
	case flags&withoutID != 0:
		f.Detail = "the row has no id, so no record can be made of it, and no dead letter has its columns"
	case flags&unroutable != 0:
		f.Detail = "no record can be made of the row, and no dead letter has its id"
	}
	if k.flags[n]&hasOtherDeadLetter != 0 {
		f.Detail += "; a dead letter of another slot than source.slot has its id"
	}
	k.note(k.findings, k.rows[n].topic, f)
}

// mayBeHidden reports whether the record of a row may be behind the readable end of its partition: that of the key's other
// records, or any of the topic.
func (k *keyJudge) mayBeHidden(n uint32, seen []sighting) bool {
	for i := range k.parts {
		p := &k.parts[i]
		if p.hidden && p.topic == k.rows[n].topic && (len(seen) == 0 || seen[0].part == uint16(i)) {
			return true
		}
	}
	return false
}

// mayHaveExpired reports whether the record of a row may have been deleted from the beginning of its partition:
// that of the key's other records, or any of the topic.
func (k *keyJudge) mayHaveExpired(n uint32, seen []sighting) bool {
	r := &k.rows[n]
	for i := range k.parts {
		p := &k.parts[i]
		if p.topic != r.topic || p.begin == 0 || len(seen) > 0 && seen[0].part != uint16(i) {
			continue
		}
		if p.first == math.MinInt64 || r.second == 0 || int64(r.second)*1000 <= p.first {
			return true
		}
	}
	return false
}

// check has a Checker judge the unaltered records of a key against its numbered rows.
func (k *keyJudge) check(seen []sighting) *delivery.Checker {
	clear(k.place)
	for i, n := range k.numbered {
		k.place[n] = int64(i + 1)
	}
	checker := delivery.New(delivery.Config{})
	for i := range seen {
		s := &seen[i]
		if s.flags&^isLSN != 0 {
			continue
		}
		p := &k.parts[s.part]
		r := delivery.Record{Coordinates: delivery.Coordinates{Topic: k.topics[p.topic].Name, Partition: p.number, Offset: k.offset(s)}}
		checker.Record(&r, &delivery.Event{Seq: k.place[s.row], Topic: r.Topic})
	}
	return checker
}

// sortByCommit orders the numbered rows by the commits of their transactions, if their first records show it, and
// reports whether they do. Rows of one transaction keep the order of the table. A missing row stays behind its
// predecessor in the table.
func (k *keyJudge) sortByCommit(seen []sighting) bool {
	type commit struct {
		order int64  // LSN or time
		first int    // the first record of the transaction
		row   uint32 // in the order of the table
	}
	type transaction struct {
		order int64
		xid   uint16
		row   uint32 // if the transaction is not known
	}
	of := make(map[uint32]commit, len(k.numbered))
	firsts := make(map[transaction]int)
	lsns := 0
	for i := range seen {
		s := &seen[i]
		if _, again := of[s.row]; again || s.flags&^isLSN != 0 {
			continue
		}
		tx := transaction{order: s.order(), xid: k.rows[s.row].xid}
		switch {
		case s.flags&isLSN != 0:
			lsns++
		case !k.cfg.CommitTimes: // the order of the topic is all there is
			tx.order = 0
		}
		if s.flags&isLSN == 0 && tx.xid == 0 {
			tx.row = s.row + 1
		}
		if _, known := firsts[tx]; !known {
			firsts[tx] = i
		}
		of[s.row] = commit{tx.order, firsts[tx], s.row}
	}
	if lsns != len(of) && (lsns > 0 || !k.cfg.CommitTimes && k.ordered) {
		return false
	}
	last := commit{order: math.MinInt64}
	for _, n := range k.numbered {
		c, ok := of[n]
		if !ok {
			c = commit{last.order, last.first, n}
			of[n] = c
		}
		last = c
	}
	slices.SortFunc(k.numbered, func(a, b uint32) int {
		x, y := of[a], of[b]
		return cmp.Or(cmp.Compare(x.order, y.order), cmp.Compare(x.first, y.first), cmp.Compare(x.row, y.row))
	})
	return true
}

// count adds the violations of a key, whose rows belong to the topic own, to the counts, and keeps the first ones as
// findings.
func (k *keyJudge) count(checker *delivery.Checker, own uint16, seen []sighting) {
	end := checker.Finish(slices.Values[[]delivery.Transaction](nil), 0)
	counts := checker.Counts()
	stale := 0
	for i := range end.First {
		v := &end.First[i]
		kind, ok := kindOf(v.Kind)
		if !ok || v.Kind == delivery.Stale && counts.OutOfOrder > 0 { // one of them, seen from the end
			continue
		}
		if v.Kind == delivery.Stale {
			stale++
		}
		f := Finding{Kind: kind, Detail: v.Detail}
		if v.Seq > 0 && v.Seq <= int64(len(k.numbered)) {
			n := k.numbered[v.Seq-1]
			f.id, f.Table = k.rows[n].id, k.tables[k.tableOf(n)]
		}
		if kind == Duplicate {
			f.Detail = k.firstRecord(k.numbered[v.Seq-1], seen)
		}
		f.Partition, f.Offset = &v.Record.Partition, &v.Record.Offset
		k.note(k.findings, k.byName[v.Record.Topic], f)
	}
	t := k.topics[own]
	t.Duplicate += counts.Duplicates
	t.OutOfOrder += counts.OutOfOrder + counts.Misplaced + stale
}

// firstRecord says where the first record of a row is that is not altered. There is one.
func (k *keyJudge) firstRecord(row uint32, seen []sighting) string {
	i := slices.IndexFunc(seen, func(s sighting) bool { return s.row == row && s.flags&^isLSN == 0 })
	p := &k.parts[seen[i].part]
	return fmt.Sprintf("the row has an earlier record at %s[%d]@%d", k.topics[p.topic].Name, p.number, k.offset(&seen[i]))
}

// phantoms counts the candidates for which no row was found.
func (l *ledger) phantoms(findings []Finding) []Finding {
	checkers := make(map[uint16]*delivery.Checker)
	for _, c := range l.candidates {
		p := &l.parts[c.part]
		checker := checkers[p.topic]
		if checker == nil {
			checker = delivery.New(delivery.Config{})
			checkers[p.topic] = checker
		}
		checker.Record(&delivery.Record{Coordinates: delivery.Coordinates{Topic: l.topics[p.topic].Name, Partition: p.number, Offset: c.offset}}, nil)
	}
	for topic, checker := range checkers {
		l.topics[topic].Phantom = checker.Counts().Phantoms
		for _, v := range checker.Violations().First {
			l.note(&findings, topic, Finding{
				Kind: Phantom, Partition: &v.Record.Partition, Offset: &v.Record.Offset, Detail: "no row of the table has its id",
			})
		}
	}
	return findings
}

// dropCandidates removes the candidates whose ids known reports.
func (l *ledger) dropCandidates(known func(id uint64) bool) {
	l.candidates = slices.DeleteFunc(l.candidates, func(c candidate) bool { return known(c.id) })
}
