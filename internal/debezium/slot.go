package debezium

import (
	"fmt"
	"regexp"
	"strings"
)

// Debezium's default names.
const (
	defaultSlot        = "debezium"
	defaultPublication = "dbz_publication"
)

func slotRules() []rule {
	otherPlugin := func(m *mapping, plugin string) (verdict, string) {
		return rejected, fmt.Sprintf("%s: only pgoutput can be carried over, and slot %s cannot change its plugin; hand over from slot to slot"+
			" (docs/migrating-from-debezium.md#another-plugin)", plugin, m.slotName())
	}
	return []rule{
		{
			key: "plugin.name", verdicts: []verdict{same, rejected}, doc: "`pgoutput`. The default is `decoderbufs`, whose slots cannot be taken over.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if strings.ToLower(e.value) != "pgoutput" {
					return otherPlugin(m, e.value)
				}
				return same, "pgoutput, as always here"
			},
			absent: func(m *mapping) (verdict, string) { return otherPlugin(m, "decoderbufs") },
		},
		{
			key: "slot.name", ours: "source.slot", verdicts: []verdict{same, rejected}, doc: "The same; the default `debezium` is written out.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if !regexp.MustCompile(`^[a-z0-9_]{1,63}$`).MatchString(e.value) {
					return rejected, "not the name of a slot, which has 1 to 63 of a-z, 0-9 and _"
				}
				m.out.Source.Slot = e.value
				return same, "source.slot"
			},
			absent: func(m *mapping) (verdict, string) {
				m.out.Source.Slot = defaultSlot
				return same, "source.slot: " + defaultSlot
			},
		},
		onOff("slot.failover", "source.slot_failover", "The same, from Postgres 17 on, where the slot is created.", func(m *mapping) *bool { return &m.out.Source.SlotFailover }),
		only("slot.drop.on.stop", false, "The slot stays, always.", "the slot would go with every stop, and with it what is committed until the next start"),
		refuse("slot.stream.params", "Options of the output plugin cannot be given."),
		note("slot.max.retries", "Tried for ever."),
		note("slot.retry.delay.ms", "Tried again at once at first, then less and less often, at least every 2 s."),
		note("internal.create.slot.command.timeout", "Bounded here too."),
		{
			key: "publication.name", ours: "source.publication", verdicts: []verdict{same, rejected}, doc: "The same; the default `dbz_publication` is written out.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if e.value == "" || len(e.value) > 63 {
					return rejected, "not a publication's name, which has 1 to 63 characters"
				}
				m.out.Source.Publication = e.value
				return same, "source.publication"
			},
			absent: func(m *mapping) (verdict, string) {
				m.out.Source.Publication = defaultPublication
				return same, "source.publication: " + defaultPublication
			},
		},
		{
			key: "publication.autocreate.mode", ours: "source.create", verdicts: []verdict{same, partial, rejected},
			doc:    "`disabled` is `false`; `filtered` and `all_tables` (the default) are `true`: a first start makes the publication, for the outbox tables only. One that exists is used as it is, also if it is for all tables. A missing slot is made in any case (`source.create_slot`), but not with `--offsets`: then it is there, to be taken over.",
			apply:  func(m *mapping, e entry) (verdict, string) { return m.autocreate(strings.ToLower(e.value)) },
			absent: func(m *mapping) (verdict, string) { return m.autocreate("all_tables") },
		},
		{
			key: "publish.via.partition.root", verdicts: []verdict{same, partial}, doc: "Records do not show it. A publication made here always has it; one that exists is used as it is.",
			apply: func(_ *mapping, e entry) (verdict, string) {
				if on, _ := boolean(e); on {
					return same, "a publication made here has it"
				}
				return partial, "a publication made here publishes rows of partitions as the root's; records do not show it, and one that exists is used as it is"
			},
		},
		{
			key: "replica.identity.autoset.values", verdicts: []verdict{noted}, doc: "Inserts do not need a replica identity; it stays as it is.",
		},
	}
}

// slotName returns the name of the slot, or the default.
func (m *mapping) slotName() string {
	if name := m.value("slot.name"); name != "" {
		return name
	}
	return defaultSlot
}

func (m *mapping) autocreate(mode string) (verdict, string) {
	switch mode {
	case "disabled", "filtered", "all_tables":
	case "no_tables":
		return rejected, "an empty publication delivers nothing unless somebody adds tables to it; use disabled or filtered"
	default:
		return rejected, fmt.Sprintf("%q is not one of all_tables, disabled, filtered, no_tables", mode)
	}
	if m.opts.Offset != nil {
		return partial, "source.create: false, as the stored offsets say that the slot is there: one that is missing has lost rows"
	}
	m.out.Source.Create, m.out.Source.CreateSlot = mode != "disabled", true
	switch mode {
	case "disabled":
		return same, "source.create: false, source.create_slot: true: a first start makes the slot, and no later one"
	case "filtered":
		return partial, "source.create, source.create_slot: a first start makes what is missing, the publication for the outbox tables; one that exists is never altered"
	}
	return partial, "source.create, source.create_slot: a first start makes what is missing, the publication for the outbox tables only; an existing one for all tables is used, though the server then decodes and sends all of them"
}
