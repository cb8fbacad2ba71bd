package catalog

import (
	"regexp"
	"slices"
	"strings"
)

// Instructions are the commands after a loss, each in one place, so that errors, check and status say the same. A command has the
// --dsn of a role that may run it: see docs/roles.md.
const (
	InstructSetup   = `outbox-cdc setup --dsn "$OWNER_DSN"`
	InstructRecover = `outbox-cdc recover --dsn "$OPERATOR_DSN"`

	// InstructUnpruned is in place of InstructRecover if a table has no delivered row any more, and only prune deletes rows.
	InstructUnpruned = InstructRecover + " --assume-unpruned"

	// InstructStartOver is for a slot without a publication.
	InstructStartOver = instructDrop + InstructSetup + ", " + InstructRecover + " and outbox-cdc run"

	// InstructByHand is in place of InstructRecover if a table lacks the columns for a refill, and the slot is lost. The slot comes first, so
	// that no row is missing in between.
	InstructByHand = InstructSetup + ", then " + instructReplay

	// instructReplay is in place of InstructRecover if a table lacks the columns for a refill, and the slot delivers the rows that the
	// publication has not left out.
	instructReplay = `send the missing rows: outbox-cdc replay --where '…' --order-by '…' --dsn "$OPERATOR_DSN", then start the relay once with outbox-cdc run --accept-gap`

	// instructStuck is in place of InstructRecover if a table lacks the columns for a refill, and the slot cannot pass rows.
	instructStuck = instructDrop + InstructByHand

	instructDrop = `outbox-cdc setup --drop --dsn "$OWNER_DSN", then `
)

// InstructRecover returns how to continue after the loss of the slot.
func (c *State) InstructRecover() string { return c.instruct(InstructRecover, InstructByHand) }

// InstructLeftOut returns how to continue after the publication has left out rows, once it publishes all.
func (c *State) InstructLeftOut() string { return c.instruct(InstructRecover, instructReplay) }

// InstructStartOver returns how to continue with a slot without a publication.
func (c *State) InstructStartOver() string { return c.instruct(InstructStartOver, instructStuck) }

// InstructStuck returns how to continue if the slot cannot pass rows of t, because the WAL does not have them with all columns.
func (t Table) InstructStuck() string {
	columns := slices.Clone(t.Columns)
	for _, c := range t.Unsent {
		columns = append(columns, c.Column)
	}
	xid := slices.ContainsFunc(columns, func(c Column) bool { return c.Name == xidColumn && c.TypeName == "xid8" })
	if xid && slices.ContainsFunc(columns, func(c Column) bool { return c.Name == orderColumn }) {
		return InstructRecover
	}
	return instructStuck
}

// InstructUnlisted returns how to continue once the publication has no column list any more.
func (t Table) InstructUnlisted() string {
	return "then, if rows were inserted meanwhile, which have no such column in the WAL, " + t.InstructStuck()
}

// instruct returns the instruction with recover, or the other one if a table lacks the columns for a refill.
func (c *State) instruct(refill, byHand string) string {
	if c.unrefillable() != "" {
		return byHand
	}
	return refill
}

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
	Arguments         string // of each command, for its configuration: -c relay.yaml; a --dsn … at its beginning is for run only
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
		arguments := t.Arguments
		if !strings.HasSuffix(text[:at[1]], " run") { // the text has the --dsn of the role, or it is that of this command
			arguments = strings.TrimSpace(strings.TrimPrefix(arguments, "--dsn …"))
		}
		if done = at[1]; arguments != "" && !configured.MatchString(text[done:]) {
			b.WriteString(" " + arguments)
		}
	}
	return b.String() + text[done:]
}

var configured = regexp.MustCompile("^ (-c|--set|--dsn …) ")
