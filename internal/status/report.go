package status

import (
	"encoding/json"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
)

// A Report is the state of a slot and its relay at one moment. In JSON, sizes are in bytes, durations in seconds, and
// positions in Postgres' notation; null is a value that is unknown or does not apply.
type Report struct {
	At time.Time `json:"at"`

	// Healthy means that Postgres and the relay, if it is to be asked, have responded, that the slot
	// is active and not about to be lost, and that the relay is ready and the broker acknowledges its
	// records, or that it is a standby. A copy of the slot on a standby server is healthy if it is ready.
	Healthy bool `json:"healthy"`

	admin.Verdict
	Postgres Postgres `json:"postgres"`
	Relay    Relay    `json:"relay"`

	NextStart *NextStart `json:"next_start"` // null: a relay runs, or the position store did not respond or is a file of another machine

	unread string // why NextStart is not known; may be empty
}

// A NextStart is what the next start of the relay would find.
type NextStart struct {
	Recorded *Recorded `json:"recorded"`        // the position record; null: no relay of this name has run yet, or the record was lost
	Parked   int       `json:"parked_keys"`     // number of parked keys
	Error    string    `json:"error,omitempty"` // why it would end
	ExitCode int       `json:"exit_code,omitempty"`
	Advice   string    `json:"advice,omitempty"` // about Error

	first   bool   // there was no slot yet: Recorded is null, or says that an initial copy follows
	recover string // how to continue if rows are missing
	refused string // why recover would refuse; empty: it would not, or that is not known
}

// Recorded is a position record.
type Recorded struct {
	EndLSN    string    `json:"end_lsn"`
	WrittenAt time.Time `json:"written_at"`

	// Unfinished is "initial copy" or "refill" if the next start sends rows from the tables first; empty otherwise.
	Unfinished string `json:"unfinished,omitempty"`

	Stopped *checkpoint.Stop `json:"stopped"` // why the relay has stopped by itself; null: it has not, or could not record it
}

// Postgres is what the slot's server reports.
type Postgres struct {
	Address  string       `json:"address"`         // without user and password
	Error    string       `json:"error,omitempty"` // why it did not respond
	ExitCode int          `json:"exit_code,omitempty"`
	Advice   string       `json:"advice,omitempty"` // about Error
	Version  int          `json:"server_version"`   // 180001 is 18.1
	SystemID string       `json:"system_id"`        // of its cluster
	LogEnd   string       `json:"log_end"`
	Slot     *Slot        `json:"slot"`               // null: it does not exist, or Error is set
	Oldest   *Transaction `json:"oldest_transaction"` // of the cluster; null: none is writing
}

// A Slot is a row of pg_replication_slots.
type Slot struct {
	Name         string `json:"name"`
	Active       bool   `json:"active"` // a WAL sender streams from it
	ActivePID    int32  `json:"active_pid"`
	Confirmed    string `json:"confirmed"`
	Restart      string `json:"restart"` // Postgres retains WAL from here on
	WALStatus    string `json:"wal_status"`
	Invalidation string `json:"invalidation_reason,omitempty"`
	NotConfirmed int64  `json:"lag_bytes"`
	Retained     int64  `json:"retained_bytes"`
	Safe         *int64 `json:"safe_bytes"` // null: no limit

	// TimeToFull is the time in seconds until Safe is 0 at the present rate. Null: Safe does not
	// shrink, there is no limit, or the rate is not known yet.
	TimeToFull *float64 `json:"time_to_full"`

	Failover       bool     `json:"failover"` // Postgres synchronizes it to standbys
	Synced         bool     `json:"synced"`   // it is the copy on a standby
	SyncSkipReason string   `json:"slotsync_skip_reason,omitempty"`
	Orphaned       bool     `json:"orphaned,omitempty"`         // it is left on a standby that was the primary
	Blocked        []string `json:"blocked_standbys,omitempty"` // standbys that cannot synchronize it, because they have a slot of this name
	Missing        []string `json:"missing_standbys,omitempty"` // slots of synchronized_standby_slots that Postgres waits for
	Decoding       Decoding `json:"decoding"`

	Application string `json:"application"` // of the client that streams from the slot

	idleAt    time.Time // see [catalog.Reserve]
	foreign   string    // the client, if it does not look like a relay
	temporary bool      // the copy on a standby is not complete yet
}

func (s *Slot) reserve() catalog.Reserve {
	return catalog.Reserve{WALStatus: s.WALStatus, Invalidation: s.Invalidation, Retained: s.Retained, Safe: s.Safe, IdleAt: s.idleAt}
}

// Decoding is a row of pg_stat_replication_slots: large transactions since the statistics were reset.
type Decoding struct {
	SpilledTransactions  int64 `json:"spill_txns"`
	SpilledBytes         int64 `json:"spill_bytes"`
	StreamedTransactions int64 `json:"stream_txns"`
	StreamedBytes        int64 `json:"stream_bytes"`
}

// A Transaction is an open transaction, for which Postgres retains WAL.
type Transaction struct {
	PID  int32   `json:"pid"` // 0: it is prepared
	GID  string  `json:"gid,omitempty"`
	User string  `json:"user"`
	App  string  `json:"application"`
	Age  float64 `json:"age"` // seconds; 0: not known
}

// Relay is what the relay reports.
type Relay struct {
	URL    string          `json:"url"`             // of its admin server; empty: it is not to be asked
	Error  string          `json:"error,omitempty"` // why it did not respond
	Status json.RawMessage `json:"status"`          // the response of /status; null: Error is set, or it was not asked

	status *admin.Status
	silent bool // its admin server accepts the connection and does not respond
}
