package checkpoint

import (
	"fmt"

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

	// Until is the snapshot of the new slot: it sees what was committed before Start. Empty: it was too
	// large for the record, and the refill cannot be continued, only started over.
	Until string
}

type refillJSON struct {
	Lost  Position `json:"lost"`
	Start string   `json:"start"`
	Until string   `json:"until,omitempty"`
}

func (r *Refill) toJSON() *refillJSON {
	if r == nil {
		return nil
	}
	return &refillJSON{r.Lost, r.Start.String(), r.Until}
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
	return &Refill{v.Lost, start, v.Until}, nil
}

// BeginRefill returns the record of a refill on server s. It makes p obsolete: it belongs to the next
// term.
func (p Position) BeginRefill(s Server, start pglogrepl.LSN, until string) Position {
	lost := p
	if p.Refill != nil {
		lost = p.Refill.Lost
	}
	lost.Claim, lost.Writer, lost.Identity, lost.Open, lost.KeysParked = 0, "", nil, Prefix{}, false
	if !ValidSnapshot(until) {
		until = ""
	}
	return Position{
		SystemID: s.SystemID, Timeline: s.Timeline, TimelineStart: s.History.start(s.Timeline), Slot: s.Slot,
		Term: p.Term + 1, Refill: &Refill{lost, start, until}, KeysParked: p.KeysParked,
	}
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
		p.Snapshots = []Snapshot{{Text: p.Snapshots[0].Text}}
	}
	p.SystemID, p.Timeline, p.TimelineStart, p.Slot, p.EndLSN, p.Open = s.SystemID, s.Timeline, s.History.start(s.Timeline), s.Slot, 0, Prefix{}
	return p
}

// EndRefill returns p after every row of its refill is acknowledged.
func (p Position) EndRefill() Position {
	r := p.Refill
	p.Refill, p.Open = nil, Prefix{}
	if r.Until != "" {
		p = p.WithSnapshot(Snapshot{EndLSN: r.Start, Text: r.Until})
	}
	return p
}

// Undelivered returns the newest snapshot that says on s which transactions were delivered: those that
// it sees. After a promotion that is one from before the fork. If p has none, snapshot is empty, and
// reason says why.
func (p Position) Undelivered(s Server) (snapshot Snapshot, reason string) {
	shared, reason := p.shared(s)
	if reason != "" {
		return Snapshot{}, reason
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
