package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
)

// A Position is the position record: a confirmed position, stored outside the server whose slot it
// is about. The slot alone proves nothing. A crash may move it back, anybody may advance or re-create
// it, and a server restored from a backup has an old one.
//
// The record is written before its position is confirmed, so the slot is never ahead of it.
type Position struct {
	SystemID string // of the cluster, as IDENTIFY_SYSTEM reports it
	Timeline int32

	// TimelineStart is where Timeline forked from its parent. 0: it is the first timeline, or the start
	// is not known.
	TimelineStart pglogrepl.LSN

	Slot   string
	EndLSN pglogrepl.LSN // everything that ends at or before it is acknowledged

	// Open has the acknowledged rows of the first transaction after EndLSN, so that a large transaction
	// is not resent from its beginning. The zero Prefix: none are known.
	Open Prefix

	// Copying says that an initial copy is not completely delivered. Which of its rows are is not
	// known. EndLSN is 0 while there is no slot.
	Copying bool

	// Term counts how often a relay did not start at the previous record: the first time, and after a
	// promotion or an accepted gap. [NewestPosition] ignores late records of an earlier term.
	Term int64

	// Claim decides which process owns the slot: the one with the highest claim. A process writes a
	// claim higher than any other before it sends, whenever another process may have sent in between.
	// 0: the record is of a version without claims.
	Claim  int64
	Writer string // a UUID of the process that made the claim

	// Identity is how the broker tells claims apart, as the sink has returned it: the broker rejects
	// writers of lower claims. Empty: it does not.
	Identity json.RawMessage

	// Snapshots show which transactions were delivered, newest first. If the slot is lost, they show
	// which rows of the table must be resent.
	Snapshots []Snapshot
	WrittenAt time.Time
}

// positionVersion is the version of the record that is written. Versions 1 and 2, which have no
// claim, are read too. Every later version is a JSON object with a member "version" too, so that an
// earlier program refuses it.
const positionVersion = 3

// ErrLaterVersion is the error for a record that a later version of this program has written.
var ErrLaterVersion = errors.New("written by a later version of this program")

type positionJSON struct {
	Version   int            `json:"version"`
	SystemID  string         `json:"system_id"`
	Timeline  int32          `json:"timeline"`
	Start     string         `json:"timeline_start,omitempty"`
	Slot      string         `json:"slot"`
	EndLSN    string         `json:"end_lsn"`
	Copying   bool           `json:"copying,omitempty"`
	Term      int64          `json:"term,omitempty"`
	Open      *openJSON      `json:"open,omitempty"`
	Snapshots []snapshotJSON `json:"snapshots,omitempty"`
	WrittenAt time.Time      `json:"written_at"`

	Claim    int64           `json:"claim,omitempty"`
	Writer   string          `json:"writer,omitempty"`
	Identity json.RawMessage `json:"producer,omitempty"`
}

type openJSON struct {
	CommitLSN string `json:"commit_lsn"`
	Rows      int64  `json:"rows"`
	CRC       uint32 `json:"crc"`
}

type snapshotJSON struct {
	EndLSN string `json:"end_lsn"`
	Text   string `json:"snapshot"`
}

// MarshalJSON returns the record as it is stored. LSNs are text, as Postgres prints them.
func (p Position) MarshalJSON() ([]byte, error) {
	v := positionJSON{
		Version: positionVersion, SystemID: p.SystemID, Timeline: p.Timeline, Slot: p.Slot,
		EndLSN: p.EndLSN.String(), Copying: p.Copying, Term: p.Term, WrittenAt: p.WrittenAt.UTC(),
		Claim: p.Claim, Writer: p.Writer, Identity: p.Identity,
	}
	if o := p.Open; o.Rows > 0 {
		v.Open = &openJSON{o.CommitLSN.String(), o.Rows, o.CRC}
	}
	if p.TimelineStart != 0 {
		v.Start = p.TimelineStart.String()
	}
	for _, s := range p.Snapshots {
		v.Snapshots = append(v.Snapshots, snapshotJSON{s.EndLSN.String(), s.Text})
	}
	return json.Marshal(v)
}

// UnmarshalJSON reads a record, without snapshots that are not valid. It returns an error that wraps
// [ErrLaterVersion] for one of a later version, and another error for anything that no version has written.
func (p *Position) UnmarshalJSON(data []byte) error {
	var version struct{ Version int }
	if err := json.Unmarshal(data, &version); err != nil {
		return err
	}
	if version.Version > positionVersion {
		return fmt.Errorf("%w: version %d of a position record, this program reads up to %d", ErrLaterVersion, version.Version, positionVersion)
	}
	var v positionJSON
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	read := Position{
		SystemID: v.SystemID, Timeline: v.Timeline, Slot: v.Slot, Copying: v.Copying, Term: v.Term, WrittenAt: v.WrittenAt,
		Claim: v.Claim, Writer: v.Writer, Identity: v.Identity,
	}
	if err := read.validate(v.Version); err != nil {
		return err
	}
	var err error
	if read.EndLSN, err = pglogrepl.ParseLSN(v.EndLSN); err != nil {
		return fmt.Errorf("end_lsn of a position record: %w", err)
	}
	if o := v.Open; o != nil {
		lsn, err := pglogrepl.ParseLSN(o.CommitLSN)
		if err != nil || o.Rows <= 0 {
			return fmt.Errorf("open transaction of a position record: commit_lsn %q, %d rows", o.CommitLSN, o.Rows)
		}
		read.Open = Prefix{lsn, o.Rows, o.CRC}
	}
	if v.Start != "" {
		if read.TimelineStart, err = pglogrepl.ParseLSN(v.Start); err != nil {
			return fmt.Errorf("timeline_start of a position record: %w", err)
		}
	}
	for _, s := range v.Snapshots {
		lsn, err := pglogrepl.ParseLSN(s.EndLSN)
		if err != nil {
			return fmt.Errorf("end_lsn of a snapshot: %w", err)
		}
		if ValidSnapshot(s.Text) { // earlier versions stored what anybody had written
			read.Snapshots = append(read.Snapshots, Snapshot{lsn, s.Text})
		}
	}
	*p = read
	return nil
}

// largestCount is far above any Term or Claim: one a millisecond reaches it after 34 years.
const largestCount = 1 << 40

// validate returns an error for what no version of this program has written.
func (p Position) validate(version int) error {
	_, err := strconv.ParseUint(p.SystemID, 10, 64)
	switch {
	case version < 1:
		return fmt.Errorf("version %d of a position record", version)
	case err != nil:
		return fmt.Errorf("system_id %q of a position record is not a number", p.SystemID)
	case p.Slot == "":
		return errors.New("a position record without slot")
	case p.Timeline < 0:
		return fmt.Errorf("timeline %d of a position record", p.Timeline)
	case p.Term < 0 || p.Term > largestCount || p.Claim < 0 || p.Claim > largestCount:
		return fmt.Errorf("term %d, claim %d of a position record", p.Term, p.Claim)
	}
	return nil
}

// NewestPosition returns the record that is valid, of those given in the order in which they were
// written: the furthest one of the newest timeline of the highest term. The last one written need not
// be valid, because a process may write late, when another one of its term has the slot. It returns
// nil if there are none.
func NewestPosition(records []Position) *Position {
	var newest *Position
	for i := range records {
		if p := &records[i]; newest == nil || !superseded(p, newest) {
			newest = p
		}
	}
	return newest
}

// superseded reports whether newest, although written before p, is valid and p is not.
func superseded(p, newest *Position) bool {
	if p.Term != newest.Term {
		return p.Term < newest.Term
	}
	if p.SystemID != newest.SystemID || p.Slot != newest.Slot || p.Term == 0 {
		return false
	}
	if p.Timeline != newest.Timeline {
		return p.Timeline < newest.Timeline // from before a promotion
	}
	if p.EndLSN != newest.EndLSN {
		return p.EndLSN < newest.EndLSN
	}
	return p.Open.Rows < newest.Open.Rows
}

// A GapError says that the slot does not continue where the record ends: what was committed in
// between may never have been delivered.
type GapError struct {
	Recorded Position
	found    Server
	Reason   string
}

// Error names both ends of the gap.
func (e *GapError) Error() string {
	return fmt.Sprintf("slot %q is at %s, the position recorded at %s is %s: %s",
		e.found.Slot, e.found.Confirmed, e.Recorded.WrittenAt.UTC().Format(time.RFC3339), e.Recorded.EndLSN, e.Reason)
}

const (
	maxSnapshots    = 6
	snapshotSpacing = 16 << 20 // bytes of WAL
)

// WithSnapshot returns p with s as its newest snapshot. Of the earlier ones it keeps a few that are
// some WAL apart: after a promotion only those from before the fork are valid, and the standby may have
// lagged.
func (p Position) WithSnapshot(s Snapshot) Position {
	earlier := p.Snapshots
	if len(earlier) >= 2 && earlier[0].EndLSN-earlier[1].EndLSN < snapshotSpacing {
		earlier = earlier[1:]
	}
	p.Snapshots = append([]Snapshot{s}, earlier[:min(len(earlier), maxSnapshots-1)]...)
	return p
}
