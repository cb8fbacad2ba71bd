package parking

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// version is the version of the records that this program writes and reads.
const version = 1

// A Record is the stored form of a Set.
type Record struct {
	Parkings []Parking
	Results  []Result
	Unparked []Unparked
}

// HasKeys reports whether r has parked keys. It may be nil.
func (r *Record) HasKeys() bool { return r != nil && len(r.Parkings) > 0 }

// HasDiscarded is [Parking.HasDiscarded] of the parking of a dead letter, which has one, also after its key was unparked.
func (r *Record) HasDiscarded(dead *encode.DeadLetter, id string) bool {
	for _, p := range r.Parkings {
		if p.ID == dead.Parked.Parking {
			return p.HasDiscarded(dead, id)
		}
	}
	return slices.ContainsFunc(r.Unparked, func(u Unparked) bool {
		return u.ID == dead.Parked.Parking && hasDiscarded(u.Discarded, dead, id)
	})
}

// NextGeneration returns a generation that is later than that of each parking, or 0 if there is none. r may be nil. A relay that has lost its
// position record continues in it: rows that it reads follow on the parked ones.
func (r *Record) NextGeneration() int64 {
	if !r.HasKeys() {
		return 0
	}
	last := slices.MaxFunc(r.Parkings, func(p, q Parking) int { return cmp.Compare(p.Generation, q.Generation) })
	return last.Generation + 1
}

// A Request asks the relay to release a key.
type Request struct {
	ID      string // UUID, also the key of the stored value
	Action  Action
	Parking string // id of the parking
	Row     string // the Place of the row to discard; empty: the one that was found bad
	FiledAt time.Time
}

// An Action is what a Request asks for.
type Action string

// The actions.
const (
	Release Action = "release" // send the records in order, then unpark the key
	Discard Action = "discard" // drop the first record, then release
)

type valueJSON struct {
	Version int          `json:"version"`
	Set     *setJSON     `json:"parked_keys,omitempty"`
	Request *requestJSON `json:"parked_key_request,omitempty"`
}

type setJSON struct {
	Keys    []keyJSON    `json:"keys"`
	Results []resultJSON `json:"results,omitempty"`

	Unparked []unparkedJSON `json:"unparked,omitempty"`
}

type unparkedJSON struct {
	ID        string          `json:"id"`
	Discarded []discardedJSON `json:"discarded"`
}

type keyJSON struct {
	ID         string          `json:"id"`
	Topic      string          `json:"topic"`
	Key        []byte          `json:"key"`
	Since      time.Time       `json:"since"`
	Reason     string          `json:"reason"`
	LSN        string          `json:"lsn"`
	Index      int             `json:"index"`
	BadLSN     string          `json:"bad_lsn"`
	BadIndex   int             `json:"bad_index"`
	Truncated  bool            `json:"truncated,omitempty"`
	RowID      string          `json:"row_id,omitempty"`
	Unsent     bool            `json:"unsent,omitempty"`
	Confirmed  bool            `json:"confirmed,omitempty"`
	Generation int64           `json:"generation"`
	Records    int             `json:"records"`
	Released   string          `json:"released,omitempty"`
	Waits      string          `json:"waits,omitempty"`
	Discarded  []discardedJSON `json:"discarded,omitempty"`
}

type discardedJSON struct {
	LSN     string `json:"lsn"`
	Index   int    `json:"index"`
	ID      string `json:"id"`
	Request string `json:"request"`
}

type resultJSON struct {
	Request  string    `json:"request"`
	Outcome  Outcome   `json:"outcome"`
	Released int       `json:"released"`
	Left     int       `json:"left"`
	Dropped  string    `json:"dropped,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	At       time.Time `json:"at"`
}

type requestJSON struct {
	ID      string    `json:"id"`
	Action  Action    `json:"action"`
	Parking string    `json:"parking"`
	Row     string    `json:"row,omitempty"`
	FiledAt time.Time `json:"filed_at"`
}

// Marshal returns the value to store under [sink.ParkedKey].
func (r *Record) Marshal() ([]byte, error) {
	set := &setJSON{Keys: make([]keyJSON, 0, len(r.Parkings))}
	for _, p := range r.Parkings {
		k := keyJSON{
			ID: p.ID, Topic: p.Topic, Key: []byte(p.Key.Key), Since: p.Since, Reason: p.Reason, LSN: p.First.LSN.String(), Index: p.First.Index,
			BadLSN: p.Bad.LSN.String(), BadIndex: p.Bad.Index, Truncated: p.Truncated, RowID: p.RowID, Unsent: p.Unsent,
			Confirmed: p.Confirmed, Generation: p.Generation, Records: p.Records, Waits: p.Waits,
		}
		if p.Released != (encode.Place{}) {
			k.Released = p.Released.String()
		}
		k.Discarded = discardedToJSON(p.Discarded)
		set.Keys = append(set.Keys, k)
	}
	for _, res := range r.Results {
		set.Results = append(set.Results, resultJSON(res))
	}
	for _, u := range r.Unparked {
		set.Unparked = append(set.Unparked, unparkedJSON{u.ID, discardedToJSON(u.Discarded)})
	}
	return json.Marshal(valueJSON{Version: version, Set: set})
}

func discardedToJSON(rows []Discarded) (out []discardedJSON) {
	for _, d := range rows {
		out = append(out, discardedJSON{d.LSN.String(), d.Index, d.ID, d.Request})
	}
	return out
}

func parseDiscarded(rows []discardedJSON) (out []Discarded, err error) {
	for _, d := range rows {
		lsn, err := pglogrepl.ParseLSN(d.LSN)
		if err != nil {
			return nil, fmt.Errorf("a discarded record of a parked key with lsn %q", d.LSN)
		}
		out = append(out, Discarded{Row{lsn, d.Index}, d.ID, d.Request})
	}
	return out, nil
}

// Marshal returns the value to store under the ID of r.
func (r Request) Marshal() ([]byte, error) {
	return json.Marshal(valueJSON{Version: version, Request: new(requestJSON(r))})
}

// A Value is a parsed value: one of its fields is set.
type Value struct {
	Record  *Record
	Request *Request
}

// Parse parses the value of a key. The error wraps [checkpoint.ErrLaterVersion] for a value of a later version; any other error
// means that neither a relay nor its operator has written the value.
func Parse(key string, data []byte) (v Value, err error) {
	var j valueJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return Value{}, err
	}
	switch {
	case j.Version > version:
		return Value{}, fmt.Errorf("%w: the record of parked keys has version %d, this program reads up to %d", checkpoint.ErrLaterVersion, j.Version, version)
	case key == sink.ParkedKey && j.Set != nil:
		v.Record, err = j.Set.parse()
	case key != sink.ParkedKey && j.Request != nil:
		v.Request, err = j.Request.parse(key)
	default:
		err = errors.New("neither a set of parked keys nor a request")
	}
	return v, err
}

func (j *setJSON) parse() (*Record, error) {
	r := &Record{}
	for _, k := range j.Keys {
		lsn, err := pglogrepl.ParseLSN(k.LSN)
		bad, badErr := pglogrepl.ParseLSN(k.BadLSN)
		if err != nil || badErr != nil || uuid.Validate(k.ID) != nil {
			return nil, fmt.Errorf("a parked key with lsn %q, id %q", k.LSN, k.ID)
		}
		p := Parking{
			ID: k.ID, Key: Key{k.Topic, string(k.Key)}, Since: k.Since, Reason: k.Reason, First: Row{lsn, k.Index}, Bad: Row{bad, k.BadIndex}, Truncated: k.Truncated, RowID: k.RowID, Unsent: k.Unsent, Confirmed: k.Confirmed, Generation: k.Generation, Records: k.Records, Waits: k.Waits,
		}
		if k.Released != "" {
			if p.Released, err = encode.ParsePlace(k.Released); err != nil {
				return nil, fmt.Errorf("a parked key: %w", err)
			}
		}
		if p.Discarded, err = parseDiscarded(k.Discarded); err != nil {
			return nil, err
		}
		r.Parkings = append(r.Parkings, p)
	}
	for _, res := range j.Results {
		r.Results = append(r.Results, Result(res))
	}
	for _, u := range j.Unparked {
		discarded, err := parseDiscarded(u.Discarded)
		if err != nil {
			return nil, err
		}
		r.Unparked = append(r.Unparked, Unparked{u.ID, discarded})
	}
	return r, nil
}

func (j *requestJSON) parse(key string) (*Request, error) {
	if j.ID != key || j.Action != Release && j.Action != Discard {
		return nil, errors.New("a request for a parked key with an unknown action, or under another key")
	}
	return new(Request(*j)), nil
}
