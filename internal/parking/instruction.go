package parking

import (
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
)

// Instruction returns how to unpark the key. A row whose dead letter is truncated is sent from its table while the later records of its
// key are still parked, so that they do not overtake it.
func (p *Parking) Instruction() string {
	if !p.Truncated {
		return "fix the cause, then outbox-cdc dead-letter release --id " + p.ShortID()
	}
	return fmt.Sprintf("let topic %s accept larger records, then send the row from its table: %s, then the later records: %s",
		p.Topic, catalog.InstructReplayRow(p.RowID), p.InstructDiscard())
}

// InstructDiscard returns the command that drops the row because of which the key is parked, and no other one if somebody repeats it.
func (p *Parking) InstructDiscard() string {
	return fmt.Sprintf("outbox-cdc dead-letter discard --id %s --row %s", p.ShortID(), p.Bad.Place())
}
