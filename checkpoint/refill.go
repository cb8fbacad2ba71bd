package checkpoint

import (
	"fmt"
	"slices"

	"github.com/jackc/pglogrepl"
)

// A Refill is the resending of the rows that a lost slot had not delivered. A position record has one
// from the creation of the new slot until all rows are acknowledged. It selects the same rows whenever it
// is continued.
type Refill struct {
	// Lost is the record of the lost slot. The rows of transactions that Lost.Undelivered's snapshot sees
	// were delivered.
	Lost Position

	// Start is the position from which the new slot delivers. What was committed before it is refilled.
	Start pglogrepl.LSN

	// Until is the snapshot of the new slot: it sees what was committed before Start. Empty: it was too large for the record, or
	// the rows have ids of another server, and the refill cannot be continued, only started over.
	Until string

	// Unpruned means that the operator has said that no undelivered row had been deleted from the tables when the slot was lost. It is
	// still true for a refill that continues this one after the loss of its slot.
	Unpruned bool

	// Earlier are the values of Until of refills that ended with the loss of their slots, the oldest first. The rows that the
	// first one sees are sent first, then those that the second one sees, and so on. So the acknowledged rows of the
	// interrupted refills are the first ones of this refill too.
	Earlier []string
}

type refillJSON struct {
	Lost     Position `json:"lost"`
	Start    string   `json:"start"`
	Until    string   `json:"until,omitempty"`
	Unpruned bool     `json:"unpruned,omitempty"`
	Earlier  []string `json:"earlier,omitempty"`
}

func (r *Refill) toJSON() *refillJSON {
	if r == nil {
		return nil
	}
	return &refillJSON{r.Lost, r.Start.String(), r.Until, r.Unpruned, r.Earlier}
}

func (v *refillJSON) parse() (*Refill, error) {
	if v == nil {
		return nil, nil //nolint:nilnil // most records have none
	}
	start, err := pglogrepl.ParseLSN(v.Start)
	switch {
	case err != nil:
		return nil, fmt.Errorf("start of a refill: %w", err)
	case v.Until != "" && !ValidSnapshot(v.Until):
		return nil, fmt.Errorf("until of a refill is no snapshot: %q", v.Until)
	}
	if slices.ContainsFunc(v.Earlier, func(text string) bool { return !ValidSnapshot(text) }) {
		return nil, fmt.Errorf("earlier of a refill has what is no snapshot: %q", v.Earlier)
	}
	return &Refill{v.Lost, start, v.Until, v.Unpruned, v.Earlier}, nil
}

// Interrupted returns the member Earlier of another refill on server s that continues the refill of p after its slot was lost.
// It returns nil if there is nothing to continue.
func (p Position) Interrupted(s Server) []string {
	r := p.Refill
	if r == nil || r.Until == "" || p.Open.Rows == 0 || p.Open.CommitLSN != r.Start-1 || p.SystemID != s.SystemID || p.Timeline != s.Timeline {
		return nil
	}
	all := append(slices.Clone(r.Earlier), r.Until)
	bytes := 0
	for _, text := range all {
		bytes += len(text)
	}
	if bytes > MaxSnapshot { // the record must fit into a message
		return nil
	}
	return all
}

// BeforeRefill returns p or, during a refill, the record of the lost slot.
func (p Position) BeforeRefill() Position {
	if p.Refill != nil {
		return p.Refill.Lost
	}
	return p
}

// HadSlot reports whether a slot existed. Before that, the record only says that an initial copy follows.
func (p Position) HadSlot() bool { return p.BeforeRefill().EndLSN != 0 }

// BeginRefill returns the record of a refill on server s. It makes p obsolete: it belongs to the next
// generation, and the refill has what the publication left out. If p has a refill whose slot was lost, the new one continues after the
// acknowledged rows if it can, see [Position.Interrupted]. unpruned is for [Refill.Unpruned].
func (p Position) BeginRefill(s Server, start pglogrepl.LSN, until string, unpruned bool) Position {
	lost := p
	if p.Refill != nil {
		lost, unpruned = p.Refill.Lost, unpruned || p.Refill.Unpruned
	}
	lost.Owner, lost.Open, lost.KeysParked, lost.Publication, lost.Stopped = 0, Prefix{}, false, "", nil
	lost.Last, lost.Reading = Landmark{}, ""
	next := Position{
		SystemID: s.SystemID, Timeline: s.Timeline, TimelineStart: s.History.start(s.Timeline), Standby: s.Standby, Slot: s.Slot,
		Generation: p.Generation + 1, Owner: p.Owner, Refill: &Refill{Lost: lost, Start: start, Unpruned: unpruned}, KeysParked: p.KeysParked, Began: p.Began,
	}
	if !ValidSnapshot(until) {
		return next
	}
	next.Refill.Until, next.Refill.Earlier = until, p.Interrupted(s)
	if next.Refill.Earlier != nil {
		next.Open = Prefix{start - 1, p.Open.Rows, p.Open.CRC}
	}
	return next
}

// Adopt returns p as if it was written on s, of which the caller knows that the transaction ids of its rows
// are those of p's server. Only the newest snapshot is kept, because no position of p is valid on s.
func (p Position) Adopt(s Server) Position {
	if p.Refill != nil {
		refill := *p.Refill
		refill.Lost = refill.Lost.Adopt(s)
		p.Refill = &refill
	}
	if len(p.Snapshots) > 0 {
		p.Snapshots = []Snapshot{p.Snapshots[0]}
		p.Snapshots[0].EndLSN, p.Snapshots[0].Witness = 0, Witness{} // a dump may be older than the row
	}
	p.SystemID, p.Timeline, p.TimelineStart, p.Standby, p.Slot, p.EndLSN, p.Open = s.SystemID, s.Timeline, s.History.start(s.Timeline), s.Standby, s.Slot, 0, Prefix{}
	p.Last, p.Reading = Landmark{}, ""
	return p
}

// EndRefill returns p after every row of its refill is acknowledged; w is one that is visible in its Until. It keeps the snapshots of the
// lost slot on this timeline: if the server is promoted without the refill, they still say what was delivered.
func (p Position) EndRefill(w Witness) Position {
	r := p.Refill
	p.Refill, p.Open = nil, Prefix{}
	if r.Until == "" {
		return p
	}
	witnesses := NewWitnesses(w)
	snapshot := witnesses.Snapshot(r.Until)
	snapshot.EndLSN = r.Start
	if r.continues(p) && len(r.Lost.Snapshots) > 0 {
		p.Snapshots, snapshot.CommitTime = r.Lost.Snapshots, r.Lost.Snapshots[0].CommitTime
	}
	return p.WithSnapshot(snapshot)
}

// continues reports whether the lost slot was on the server and the timeline of p, which has the refill.
func (r *Refill) continues(p Position) bool {
	return r.Lost.SystemID == p.SystemID && r.Lost.Timeline == p.Timeline
}

// Undelivered returns the newest snapshot that says on s which transactions were delivered: those that
// it sees. After a promotion that is one from before the fork. If p has none, snapshot is empty, and
// reason says why.
func (p Position) Undelivered(s Server) (snapshot Snapshot, reason string) {
	shared, other := p.shared(s)
	if other != nil {
		return Snapshot{}, other.Error()
	}
	for _, of := range p.Snapshots {
		if of.EndLSN <= shared {
			return of, ""
		}
	}
	if len(p.Snapshots) > 0 {
		return Snapshot{}, fmt.Sprintf("the server left timeline %d at %s, and the record has no snapshot from before that", p.Timeline, shared)
	}
	return Snapshot{}, "the record has no snapshot: the relay writes the first one within seconds of its start"
}
