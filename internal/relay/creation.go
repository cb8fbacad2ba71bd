package relay

import "github.com/outbox-cdc/outbox-cdc/internal/catalog"

// A Creation says what the first start of a relay creates in Postgres.
type Creation string

// What a first start creates.
const (
	CreateAll  Creation = "all"  // the publication, for Config.Tables, and the slot, if neither exists
	CreateSlot Creation = "slot" // the slot, if the publication exists; needs Config.Positions, which tells a dropped slot from one that never existed
	CreateNone Creation = "none"
)

// Creations returns the values of a Creation.
func Creations() []Creation { return []Creation{CreateAll, CreateSlot, CreateNone} }

// Allows reports whether a first start creates what state lacks. state may be nil.
func (c Creation) Allows(state *catalog.State) bool {
	switch {
	case state == nil || state.Slot != nil:
		return false
	case state.Publication != nil:
		return c == CreateSlot
	default:
		return c == CreateAll
	}
}
