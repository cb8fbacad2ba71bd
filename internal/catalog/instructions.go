package catalog

// Instructions are the commands after a loss, each in one place, so that errors, check and status say the same. A command has the
// --dsn of a role that may run it: see docs/roles.md.
const (
	InstructSetup   = `outbox-cdc setup --dsn "$OWNER_DSN"`
	InstructRecover = `outbox-cdc recover --dsn "$OPERATOR_DSN"`
	InstructReplay  = `outbox-cdc replay --undelivered --dsn "$OPERATOR_DSN"`

	// InstructResume is for rows that the publication has left out, once it publishes their table again.
	InstructResume = "send them with " + InstructReplay + ", then start the relay once with outbox-cdc run --accept-gap"

	// InstructStartOver is for a slot that cannot pass rows without a publication.
	InstructStartOver = `outbox-cdc setup --drop --dsn "$OWNER_DSN", then ` + InstructSetup + ", " + InstructRecover + " and outbox-cdc run"

	// InstructNoSlot is for a missing slot if it is not known whether a relay has used it.
	InstructNoSlot = InstructRecover + " creates it and sends those rows from the table; for a relay that has never run, " + InstructSetup + " creates it"
)
