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
		return rejected, fmt.Sprintf("%s: only pgoutput is supported, and slot %s cannot change its plugin; use a second slot"+
			" (docs/migrating-from-debezium.md#another-plugin)", plugin, m.slotName())
	}
	return []rule{
		{
			key: "plugin.name", verdicts: []verdict{same, rejected}, doc: "`pgoutput`. The default is `decoderbufs`; the relay cannot take over such a slot.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if strings.ToLower(e.value) != "pgoutput" {
					return otherPlugin(m, e.value)
				}
				return same, "pgoutput, as always here"
			},
			absent: func(m *mapping) (verdict, string) { return otherPlugin(m, "decoderbufs") },
		},
		{
			key: "slot.name", ours: "source.slot", verdicts: []verdict{same, rejected}, doc: "The same; the default is `debezium`.",
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
		onOff("slot.failover", "source.slot_failover", "The same for a slot that the relay creates, from Postgres 17 on.", func(m *mapping) *bool { return &m.out.Source.SlotFailover }),
		only("slot.drop.on.stop", false, "The relay never drops the slot.", "the slot would go with every stop, and with it what is committed until the next start"),
		refuse("slot.stream.params", "Options of the output plugin are not supported."),
		note("slot.max.retries", "The relay retries without limit."),
		note("slot.retry.delay.ms", "The relay retries at once, then with backoff up to 2 s."),
		note("internal.create.slot.command.timeout", "The relay has its own limit."),
		{
			key: "publication.name", ours: "source.publication", verdicts: []verdict{same, rejected}, doc: "The same; the default is `dbz_publication`.",
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
			doc:    "`disabled` is `false`; `filtered` and `all_tables` (the default) are `true`: the first start creates a publication for the outbox tables only. An existing publication is not changed, even if it is for all tables. The first start also creates a missing slot (`source.create_slot`), but not with `--offsets`, which means that the relay takes over a slot.",
			apply:  func(m *mapping, e entry) (verdict, string) { return m.autocreate(strings.ToLower(e.value)) },
			absent: func(m *mapping) (verdict, string) { return m.autocreate("all_tables") },
		},
		{
			key: "publish.via.partition.root", verdicts: []verdict{same, partial}, doc: "No effect on records. A publication that the relay creates always has it; an existing one is not changed.",
			apply: func(_ *mapping, e entry) (verdict, string) {
				if on, _ := boolean(e); on {
					return same, "a publication that the relay creates has it"
				}
				return partial, "a publication that the relay creates publishes rows of partitions as the root's; records are the same, and an existing publication is not changed"
			},
		},
		{
			key: "replica.identity.autoset.values", verdicts: []verdict{noted}, doc: "Inserts need no replica identity. It does not change.",
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
		return same, "source.create: false, source.create_slot: true: only a first start creates the slot"
	case "filtered":
		return partial, "source.create, source.create_slot: a first start creates what is missing, the publication for the outbox tables; an existing one is never changed"
	}
	return partial, "source.create, source.create_slot: a first start creates what is missing, the publication for the outbox tables only; an existing one for all tables is used, but Postgres then decodes and sends all of them"
}
