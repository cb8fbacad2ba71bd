package status

import (
	"encoding/json"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
)

// A Report is what both sides say at a moment. As JSON, sizes are in bytes, durations in seconds,
// positions as Postgres writes them; null stands for what is not known or does not apply.
type Report struct {
	At time.Time `json:"at"`

	// Healthy: every side that was to be asked has answered, the slot is there, is read and is
	// not about to be lost, and the relay is ready, or stands by while another one reads.
	Healthy bool `json:"healthy"`

	admin.Verdict
	Postgres Postgres `json:"postgres"`
	Relay    Relay    `json:"relay"`
}

// Postgres is what the server of the slot says.
type Postgres struct {
	Address  string       `json:"address"`         // without user and password
	Error    string       `json:"error,omitempty"` // why it has said nothing
	ExitCode int          `json:"exit_code,omitempty"`
	Advice   string       `json:"advice,omitempty"` // about Error
	Version  int          `json:"server_version"`   // 180001 is 18.1
	SystemID string       `json:"system_id"`        // of its cluster
	LogEnd   string       `json:"log_end"`
	Slot     *Slot        `json:"slot"`               // null: there is none, or Error
	Oldest   *Transaction `json:"oldest_transaction"` // of the cluster; null: nobody is writing
}

// A Slot is what Postgres says of it.
type Slot struct {
	Name         string `json:"name"`
	Active       bool   `json:"active"` // somebody reads it
	ActivePID    int32  `json:"active_pid"`
	Confirmed    string `json:"confirmed"`
	Restart      string `json:"restart"` // log is kept from here on
	WALStatus    string `json:"wal_status"`
	Invalidation string `json:"invalidation_reason,omitempty"`
	NotConfirmed int64  `json:"lag_bytes"`
	Retained     int64  `json:"retained_bytes"`
	Safe         *int64 `json:"safe_bytes"` // null: no limit

	// TimeToFull is when Safe will be 0 at the present rate. Null: it does not shrink, has no
	// bound, or has been watched too shortly.
	TimeToFull *float64 `json:"time_to_full"`

	idleAt time.Time // see [catalog.Reserve]
}

// A Transaction is open, and log is kept for it.
type Transaction struct {
	PID  int32   `json:"pid"` // 0: it is prepared
	GID  string  `json:"gid,omitempty"`
	User string  `json:"user"`
	App  string  `json:"application"`
	Age  float64 `json:"age"` // 0: not known
}

// Relay is what a running relay says of itself.
type Relay struct {
	URL    string          `json:"url"`             // of its admin server; empty: not to be asked
	Error  string          `json:"error,omitempty"` // why it has said nothing
	Status json.RawMessage `json:"status"`          // as /status answers; null: Error, or not asked

	status *admin.Status
}
