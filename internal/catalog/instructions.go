package catalog

import (
	"regexp"
	"strings"
)

// Instructions are the commands after a loss, each in one place, so that errors, check and status say the same. A command has the
// --dsn of a role that may run it: see docs/roles.md.
const (
	InstructSetup   = `outbox-cdc setup --dsn "$OWNER_DSN"`
	InstructRecover = `outbox-cdc recover --dsn "$OPERATOR_DSN"`
	InstructReplay  = `outbox-cdc replay --undelivered --dsn "$OPERATOR_DSN"`

	// InstructUnpruned is in place of InstructRecover if a table has no delivered row any more, and only prune deletes rows.
	InstructUnpruned = InstructRecover + " --assume-unpruned"

	// InstructResume is for rows that the publication has left out, once it publishes their table again.
	InstructResume = "send them with " + InstructReplay + ", then start the relay once with outbox-cdc run --accept-gap"

	// instructPast is for rows that the publication has left out since the position was recorded.
	instructPast = "rows inserted in between are not delivered: " + InstructResume + "; if a column list left out a column in between, instead: " + InstructStartOver

	// instructSwitched is for a position that was recorded with another publication.
	instructSwitched = "if this one, with its tables, is older than that position, no row is missing: start the relay once with outbox-cdc run --accept-gap; otherwise rows inserted before it was created are not delivered: " + InstructResume

	// InstructUnlisted is for rows that were inserted while the column list of the publication left out a column, once it has none.
	InstructUnlisted = "then, if rows were inserted meanwhile, which have no such column in the WAL, " + InstructStartOver

	// InstructStartOver is for a slot that cannot pass rows without a publication, or without a column.
	InstructStartOver = `outbox-cdc setup --drop --dsn "$OWNER_DSN", then ` + InstructSetup + ", " + InstructRecover + " and outbox-cdc run"

	// InstructByHand is in place of InstructRecover if a table lacks the columns for a refill. The slot comes first, so that no row is
	// missing in between.
	InstructByHand = InstructSetup + `, then send the missing rows: outbox-cdc replay --where '…' --order-by '…' --dsn "$OPERATOR_DSN", then start the relay once with outbox-cdc run --accept-gap`
)

// InstructReplayRow sends the row with an id from its table. If the id is empty, or a shell would not take it as it is, the operator has
// to select the row.
func InstructReplayRow(id string) string {
	selects := "--ids " + id
	if !plainID.MatchString(id) {
		selects = "--where '…'"
	}
	return "outbox-cdc replay " + selects + ` --dsn "$OPERATOR_DSN"`
}

var plainID = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._:-]*$`)

// Terms are what a text with instructions leaves open. The zero Terms leave it as it is.
type Terms struct {
	Slot, Publication string // in the place of <slot> and <publication>
	Arguments         string // of each command, for its configuration: -c relay.yaml
}

var instructed = regexp.MustCompile("outbox-cdc (audit|check|dead-letter [a-z]+|prune|recover|replay|run|setup|status|tail)")

// Fill returns a text with the terms in it. A command is one to copy, with the name of the program; prose has the verb alone. A command
// that has a configuration already keeps it: a relay's text may have come to a client with another one.
func (t Terms) Fill(text string) string {
	if t.Slot != "" {
		text = strings.NewReplacer("<slot>", t.Slot, "<publication>", t.Publication).Replace(text)
	}
	if t.Arguments == "" {
		return text
	}
	var b strings.Builder
	done := 0
	for _, at := range instructed.FindAllStringIndex(text, -1) {
		b.WriteString(text[done:at[1]])
		if done = at[1]; !configured.MatchString(text[done:]) {
			b.WriteString(" " + t.Arguments)
		}
	}
	return b.String() + text[done:]
}

var configured = regexp.MustCompile("^ (-c|--set) ")
