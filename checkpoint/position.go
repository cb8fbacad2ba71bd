package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
)

// A Position is the position record: the confirmed position of a slot, stored outside of the server
// that has the slot. The slot alone proves nothing. After a crash it may be behind, anybody may
// advance or re-create it, and a server restored from a backup has an old one.
//
// The relay writes the record before it confirms the position to Postgres. So a slot that is ahead
// of the record was advanced by somebody else.
type Position struct {
	SystemID string // of the cluster, as IDENTIFY_SYSTEM reports it
	Timeline int32

	// TimelineStart is where Timeline forked from its parent. 0: it is the first timeline, or its start
	// is unknown.
	TimelineStart pglogrepl.LSN

	// Standby says that the server was a standby server.
	Standby bool

	Slot   string
	EndLSN pglogrepl.LSN // every transaction that ends at or before it is acknowledged

	// Last is the last Landmark before EndLSN, for sessions with the same [Server.Reading]. The zero Landmark is unknown.
	Last    Landmark
	Reading string

	// Open has the acknowledged rows of the first transaction after EndLSN, so that the relay need not
	// resend a large transaction from its first row. The zero Prefix: no acknowledged rows.
	Open Prefix

	// AdvancedAt is when EndLSN or Open last advanced, by the clock of the relay. Zero: unknown.
	AdvancedAt time.Time

	// Copying says that the initial copy is not finished. The record does not say which of its rows
	// were delivered. EndLSN is 0 until the slot is created.
	Copying bool

	// CopyBegan is when the first attempt of the initial copy began, while Copying is set.
	CopyBegan time.Time

	// Refill is set while rows of a lost slot are resent. EndLSN is 0 until the first ownership after that.
	Refill *Refill

	// KeysParked says that the relay has stored parked keys beside the record. If they are missing, the store has lost
	// them.
	KeysParked bool

	// Publication is a JSON value that identifies the publication as of this position, for its writer to compare. Empty:
	// unknown.
	Publication string

	// Generation grows whenever a relay does not start at the previous record: the first time, after a promotion, and after an
	// accepted gap. Positions of different generations say nothing about each other.
	Generation int64

	// Owner counts the owners of the record. It is that of the one who has written it.
	Owner int64

	// Snapshots say which transactions were delivered, newest first. If the slot is lost, they decide
	// which rows of the table must be resent.
	Snapshots []Snapshot
	WrittenAt time.Time

	// Began is when the first record of the name was written, unless the store has lost it since.
	Began time.Time

	// Stopped is why the relay that wrote the record has stopped, if that needs a person. Nil: it runs, was stopped, or could not
	// write it.
	Stopped *Stop
}

// A Stop says why a relay stopped by itself.
type Stop struct {
	At       time.Time `json:"at"`
	ExitCode int       `json:"exit_code"`
	Reason   string    `json:"reason"` // the error of the relay
	Advice   string    `json:"advice"`

	// Recover means that the WAL may not have rows as the table has them, which a refill can send.
	Recover bool `json:"recover,omitempty"`
}

// positionVersion is the version of the records that this program writes and reads. Every later version must be a JSON object
// with a member "version", so that this program rejects it with ErrLaterVersion.
const positionVersion = 1

// ErrLaterVersion says that a later version of this program wrote the record.
var ErrLaterVersion = errors.New("written by a later version of this program")

type positionJSON struct {
	Version    int             `json:"version"`
	SystemID   string          `json:"system_id"`
	Timeline   int32           `json:"timeline"`
	Start      string          `json:"timeline_start,omitempty"`
	Standby    bool            `json:"standby,omitempty"`
	Slot       string          `json:"slot"`
	EndLSN     string          `json:"end_lsn"`
	Last       *landmarkJSON   `json:"last,omitempty"`
	Copying    bool            `json:"copying,omitempty"`
	CopyBegan  time.Time       `json:"copy_began,omitzero"`
	Parked     bool            `json:"keys_parked,omitempty"`
	Published  json.RawMessage `json:"publication,omitempty"`
	Generation int64           `json:"generation,omitempty"`
	Owner      int64           `json:"owner,omitempty"`
	Open       *openJSON       `json:"open,omitempty"`
	Refill     *refillJSON     `json:"refill,omitempty"`
	Snapshots  []snapshotJSON  `json:"snapshots,omitempty"`
	Advanced   time.Time       `json:"advanced_at,omitzero"`
	WrittenAt  time.Time       `json:"written_at"`
	Began      time.Time       `json:"began,omitzero"`
	Stopped    *Stop           `json:"stopped,omitempty"`
}

type landmarkJSON struct {
	CommitLSN string `json:"commit_lsn"`
	Micros    int64  `json:"commit_micros"` // a number, because a replication origin may set a time that JSON does not have
	Reading   string `json:"reading"`
}

type openJSON struct {
	CommitLSN string `json:"commit_lsn"`
	Rows      int64  `json:"rows"`
	CRC       uint32 `json:"crc"`
}

// MarshalJSON returns the stored form of the record. LSNs are text, as Postgres prints them.
func (p Position) MarshalJSON() ([]byte, error) {
	v := positionJSON{
		Version: positionVersion, SystemID: p.SystemID, Timeline: p.Timeline, Standby: p.Standby, Slot: p.Slot,
		EndLSN: p.EndLSN.String(), Advanced: p.AdvancedAt.UTC(), Copying: p.Copying, CopyBegan: p.CopyBegan, Parked: p.KeysParked, Generation: p.Generation, Owner: p.Owner, WrittenAt: p.WrittenAt.UTC(), Began: p.Began.UTC(),
		Refill: p.Refill.toJSON(), Published: json.RawMessage(p.Publication), Stopped: p.Stopped,
	}
	if o := p.Open; o.Rows > 0 {
		v.Open = &openJSON{o.CommitLSN.String(), o.Rows, o.CRC}
	}
	if l := p.Last; l != (Landmark{}) {
		v.Last = &landmarkJSON{l.CommitLSN.String(), l.Micros, p.Reading}
	}
	if p.TimelineStart != 0 {
		v.Start = p.TimelineStart.String()
	}
	for _, s := range p.Snapshots {
		v.Snapshots = append(v.Snapshots, s.toJSON())
	}
	return json.Marshal(v)
}

// UnmarshalJSON parses a stored record. It leaves out invalid snapshots. The error wraps
// [ErrLaterVersion] for a record of a later version. It also returns an error for values that no
// version of this program writes. An error leaves p unchanged.
func (p *Position) UnmarshalJSON(data []byte) error {
	var version struct{ Version int }
	if err := json.Unmarshal(data, &version); err != nil {
		return err
	}
	if version.Version > positionVersion {
		return fmt.Errorf("%w: the position record has version %d, this program reads up to %d", ErrLaterVersion, version.Version, positionVersion)
	}
	var v positionJSON
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	read := Position{
		SystemID: v.SystemID, Timeline: v.Timeline, Standby: v.Standby, Slot: v.Slot, AdvancedAt: v.Advanced, Copying: v.Copying, CopyBegan: v.CopyBegan, KeysParked: v.Parked, Publication: string(v.Published), Generation: v.Generation, Owner: v.Owner, WrittenAt: v.WrittenAt, Began: v.Began, Stopped: v.Stopped,
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
	if l := v.Last; l != nil {
		lsn, err := pglogrepl.ParseLSN(l.CommitLSN)
		if err != nil {
			return fmt.Errorf("last transaction of a position record: %w", err)
		}
		read.Last, read.Reading = Landmark{lsn, l.Micros}, l.Reading
	}
	if read.Refill, err = v.Refill.parse(); err != nil {
		return err
	}
	if v.Start != "" {
		if read.TimelineStart, err = pglogrepl.ParseLSN(v.Start); err != nil {
			return fmt.Errorf("timeline_start of a position record: %w", err)
		}
	}
	for _, s := range v.Snapshots {
		snapshot, err := s.parse()
		if err != nil {
			return err
		}
		if ValidSnapshot(s.Text) {
			read.Snapshots = append(read.Snapshots, snapshot)
		}
	}
	*p = read
	return nil
}

// largestCount is far above any Generation or Owner: at one per millisecond it takes 34 years to reach.
const largestCount = 1 << 40

// validate returns an error for values that no version of this program writes.
func (p Position) validate(version int) error {
	_, err := strconv.ParseUint(p.SystemID, 10, 64)
	switch {
	case version < 1:
		return fmt.Errorf("version %d of a position record", version)
	case err != nil:
		return fmt.Errorf("system_id %q of a position record is not a number", p.SystemID)
	case p.Slot == "":
		return errors.New("a position record without a slot")
	case p.Timeline < 0:
		return fmt.Errorf("timeline %d of a position record", p.Timeline)
	case p.Generation < 0 || p.Generation > largestCount || p.Owner < 0 || p.Owner > largestCount:
		return fmt.Errorf("generation %d, owner %d of a position record", p.Generation, p.Owner)
	}
	return nil
}

// A GapError says that the slot does not continue where the record ends. Rows that were committed
// in between may not have been delivered.
type GapError struct {
	Recorded Position
	found    Server
	Reason   error
}

// Error names both positions and the reason.
func (e *GapError) Error() string {
	slot := fmt.Sprintf("slot %q is at %s", e.found.Slot, e.found.Confirmed)
	if e.found.Confirmed == 0 {
		slot = fmt.Sprintf("slot %q does not exist", e.found.Slot)
	}
	return fmt.Sprintf("%s, the position recorded at %s is %s: %s", slot, e.Recorded.WrittenAt.UTC().Format(time.RFC3339), e.Recorded.EndLSN, e.Reason)
}

// Unwrap returns the reason.
func (e *GapError) Unwrap() error { return e.Reason }

// SameSlot reports whether the record is of this slot and of this server's WAL, so that the gap ends where the slot is.
func (e *GapError) SameSlot() bool {
	_, other := errors.AsType[*mismatch](e.Reason)
	return !other
}

const (
	maxSnapshots    = 6
	snapshotSpacing = 16 << 20 // bytes of WAL
)

// WithSnapshot returns p with s as its newest snapshot. It keeps a few earlier ones, at least 16 MiB of
// WAL apart. They are needed after a promotion: only snapshots from before the fork are valid then, and
// the promoted standby may have lagged.
func (p Position) WithSnapshot(s Snapshot) Position {
	earlier := p.Snapshots
	if len(earlier) > 0 && s.Witness != (Witness{}) && s.Witness == earlier[0].Witness {
		s.CommitTime = earlier[0].CommitTime // s may not see rows that were delivered before it, see Witnesses
	}
	if len(earlier) >= 2 && earlier[0].EndLSN-earlier[1].EndLSN < snapshotSpacing {
		earlier = earlier[1:]
	}
	p.Snapshots = append([]Snapshot{s}, earlier[:min(len(earlier), maxSnapshots-1)]...)
	return p
}
