package debezium

import (
	"cmp"
	"fmt"
	"strings"
)

// Debezium's default names.
const (
	defaultSlot        = "debezium"
	defaultPublication = "dbz_publication"
)

func slotRules() []rule {
	otherPlugin := func(m *mapping, plugin string) (verdict, string) {
		if m.opts.NewSlot != "" {
			return partial, fmt.Sprintf("pgoutput, in the new slot %s: slot %s of %s cannot change its plugin", m.opts.NewSlot, m.slotName(), plugin)
		}
		return rejected, fmt.Sprintf("%s: only pgoutput is supported, and slot %s cannot change its plugin; --new-slot NAME converts for a new slot beside it,"+
			" and prints how to switch over", plugin, m.slotName())
	}
	return []rule{
		{
			key: "plugin.name", verdicts: []verdict{same, partial, rejected}, doc: "`pgoutput`. The default is `decoderbufs`; the relay cannot take over such a slot: `--new-slot`.",
			apply: func(m *mapping, e entry) (verdict, string) {
				if strings.ToLower(e.value) != "pgoutput" {
					return otherPlugin(m, cmp.Or(e.value, `""`))
				}
				return same, "pgoutput, as always here"
			},
			absent: func(m *mapping) (verdict, string) { return otherPlugin(m, "decoderbufs") },
		},
		{
			key: "slot.name", ours: "source.slot", verdicts: []verdict{same, partial, rejected}, doc: "The same; the default is `debezium`. With `--new-slot`, the name of the new slot.",
			apply:  func(m *mapping, e entry) (verdict, string) { return m.setSlot(e.value) },
			absent: func(m *mapping) (verdict, string) { return m.setSlot(defaultSlot) },
		},
		onOff("slot.failover", "source.slot_failover", "The same for a slot that the relay creates, from Postgres 17 on.", func(m *mapping) *bool { return &m.out.Source.SlotFailover }),
		{
			key: "slot.drop.on.stop", verdicts: []verdict{noted, partial, rejected}, doc: "The relay never drops the slot. With `true`, Debezium drops it whenever the connector stops or restarts, also for a change of this option: use `--new-slot`.",
			apply: func(m *mapping, e entry) (verdict, string) {
				switch _, refusal := boolean(e); {
				case refusal != "":
					return rejected, refusal
				case !m.dropsSlot():
					return noted, "the relay never drops the slot"
				case m.opts.NewSlot != "":
					return noted, "the relay never drops its slot; Debezium drops its own when it stops"
				}
				return partial, "the relay never drops the slot, but Debezium drops it whenever the connector stops or restarts, also to change this option," +
					" and rows that are committed after that would be lost: do not take it over, use --new-slot NAME"
			},
		},
		refuse("slot.stream.params", "Options of the output plugin are not supported."),
		note("slot.max.retries", "The relay retries without limit."),
		note("slot.retry.delay.ms", "The relay retries at once, then with backoff up to 2 s."),
		note("internal.create.slot.command.timeout", "The relay has its own limit."),
		{
			key: "publication.name", ours: "source.publication", verdicts: []verdict{same, partial, rejected}, doc: "The same; the default is `dbz_publication`. Another plugin has none: then it has the name of the new slot.",
			apply:  func(m *mapping, e entry) (verdict, string) { return m.setPublication(e.value) },
			absent: func(m *mapping) (verdict, string) { return m.setPublication(defaultPublication) },
		},
		{
			key: "publication.autocreate.mode", ours: "source.create", verdicts: []verdict{same, partial, rejected},
			doc:    "`disabled` is `slot`: the first start creates a missing slot. `filtered` and `all_tables` (the default) are `all`: if neither exists, the first start creates the slot and a publication for the outbox tables only. An existing publication is not changed, even if it is for all tables. With `--offsets`, which means that the relay takes over a slot, it is `none`.",
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

// dropsSlot reports whether Debezium drops its slot when it stops.
func (m *mapping) dropsSlot() bool {
	on, _ := boolean(entry{value: m.value("slot.drop.on.stop")})
	return on
}

// isSlotName reports whether Postgres allows name as the name of a slot.
func isSlotName(name string) bool { return compileOnce(`^[a-z0-9_]{1,63}$`).MatchString(name) }

// setSlot sets the slot, where own is the connector's.
func (m *mapping) setSlot(own string) (verdict, string) {
	const wrong = "not the name of a slot, which has 1 to 63 of a-z, 0-9 and _"
	m.out.Source.Slot = cmp.Or(m.opts.NewSlot, own)
	switch {
	case !isSlotName(own):
		return rejected, wrong
	case m.opts.NewSlot == "":
		return same, "source.slot: " + own
	case !isSlotName(m.opts.NewSlot):
		return rejected, "--new-slot: " + wrong
	case m.opts.NewSlot == own:
		return rejected, "--new-slot: " + own + " is the connector's own slot; give another name"
	}
	return partial, fmt.Sprintf("source.slot: %s, a new slot; slot %s retains WAL until you drop it", m.opts.NewSlot, own)
}

// setPublication sets the publication, where own is the connector's.
func (m *mapping) setPublication(own string) (verdict, string) {
	if own == "" || len(own) > 63 {
		return rejected, "not a publication's name, which has 1 to 63 characters"
	}
	m.out.Source.Publication = own
	if !strings.EqualFold(m.value("plugin.name"), "pgoutput") && m.opts.NewSlot != "" {
		m.out.Source.Publication = m.opts.NewSlot
		return partial, "source.publication: " + m.opts.NewSlot + ", a new one: only pgoutput has publications"
	}
	return same, "source.publication: " + own
}

// slotName returns the name of the connector's slot, or the default.
func (m *mapping) slotName() string {
	if name := m.value("slot.name"); name != "" {
		return strings.NewReplacer("${"+serverProvider, "${", "${"+shellProvider, "${").Replace(name)
	}
	return defaultSlot
}

func (m *mapping) autocreate(mode string) (verdict, string) {
	switch {
	case m.opts.NewSlot != "":
		return partial, "source.create: none, as setup creates the new slot, and the publication if it is missing"
	case mode == "disabled", mode == "filtered", mode == "all_tables", mode == "no_tables" && m.chain.decode != "":
	case mode == "no_tables":
		return rejected, "an empty publication delivers nothing unless somebody adds tables to it; use disabled or filtered"
	default:
		return rejected, fmt.Sprintf("%q is not one of all_tables, disabled, filtered, no_tables", mode)
	}
	if m.opts.Offset != nil {
		return partial, "source.create: none, as the stored offsets say that the slot is there: one that is missing has lost rows"
	}
	if m.dropsSlot() {
		return partial, "source.create: none, because of slot.drop.on.stop: a relay that created the slot would not notice that the connector's was dropped"
	}
	m.out.Source.Create = "all"
	switch mode {
	case "disabled":
		m.out.Source.Create = "slot"
		return same, "source.create: slot: only a first start creates the slot"
	case "filtered":
		return partial, "source.create: all: if neither exists, a first start creates the slot and a publication for the outbox tables; an existing one is never changed"
	}
	return partial, "source.create: all: if neither exists, a first start creates the slot and a publication for the outbox tables only; an existing one for all tables is used, but Postgres then decodes and sends all of them"
}
