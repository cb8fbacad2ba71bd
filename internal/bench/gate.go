package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// A gate has limits for the figures of the relay: their ratios to another
// contender's, and memory. There are no limits for absolute times, because they
// depend on the machine.
type gate struct {
	Drain   []drainRule   `yaml:"drain"`
	Latency []latencyRule `yaml:"latency"`
	Outage  []outageRule  `yaml:"outage"`
}

// A drainRule applies to the drains whose case name contains Case. Zero means no
// limit.
type drainRule struct {
	Sink          string `yaml:"sink"`           // kind of the broker; empty: all
	Case          string `yaml:"case"`           // empty: all
	MaxPartitions int    `yaml:"max_partitions"` // of all topics together; 0: any number
	Codec         string `yaml:"codec"`          // empty: all
	Against       string `yaml:"against"`        // contender; empty: pg_recvlogical

	MinRate  float64 `yaml:"min_rate"`   // ours ÷ theirs, rows per second
	MaxCPU   float64 `yaml:"max_cpu"`    // ours ÷ theirs, CPU per row
	MaxRSSMB float64 `yaml:"max_rss_mb"` // ours, at most in any run
}

// A latencyRule applies to one rate.
type latencyRule struct {
	Sink          string `yaml:"sink"`           // kind of the broker; empty: all
	MaxPartitions int    `yaml:"max_partitions"` // of all topics together; 0: any number
	Rate          int    `yaml:"rate"`           // 0: all
	Against       string `yaml:"against"`        // contender; empty: nobody

	MaxP50   float64 `yaml:"max_p50"` // ours ÷ theirs
	MaxP99   float64 `yaml:"max_p99"`
	MaxRSSMB float64 `yaml:"max_rss_mb"`
}

// An outageRule applies to all outages. Zero means no limit.
type outageRule struct {
	Sink        string  `yaml:"sink"`          // kind of the broker; empty: all
	MaxGrowthMB float64 `yaml:"max_growth_mb"` // RSS during the outage, compared with before, at most in any run
}

func readGate(path string) (gate, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the caller's choice
	if err != nil {
		return gate{}, err
	}
	var g gate
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&g); err != nil {
		return gate{}, fmt.Errorf("read %s: %w", path, err)
	}
	return g, nil
}

// A comparison is a figure and its limit.
type comparison struct {
	what  string // "200 B, 10 a transaction, none: rows/s ÷ pg_recvlogical"
	value float64
	limit float64
	least bool // limit is a minimum, not a maximum
}

func (c comparison) isMet() bool {
	if c.least {
		return c.value >= c.limit
	}
	return c.value <= c.limit
}

func (c comparison) String() string {
	word, relation := "ok  ", "at most"
	if !c.isMet() {
		word = "FAIL"
	}
	if c.least {
		relation = "at least"
	}
	return fmt.Sprintf("%s %s is %s, %s %s", word, c.what, figure(c.value), relation, figure(c.limit))
}

// check applies the rules to a report. It returns an error if a figure exceeds its
// limit, or if no rule applies.
func (g gate) check(r *report) ([]comparison, error) {
	var all []comparison
	for _, rule := range g.Drain {
		if !onSink(rule.Sink, r) {
			continue
		}
		for _, d := range r.Drains {
			all = append(all, rule.apply(d)...)
		}
	}
	for _, rule := range g.Latency {
		if !onSink(rule.Sink, r) || rule.MaxPartitions != 0 && r.Over.allPartitions() > rule.MaxPartitions {
			continue
		}
		for _, l := range r.Latency {
			all = append(all, rule.apply(l)...)
		}
	}
	for _, rule := range g.Outage {
		if !onSink(rule.Sink, r) {
			continue
		}
		for _, o := range r.Outages {
			if o.Contender == relayName && len(o.Runs) > 0 && rule.MaxGrowthMB > 0 {
				all = append(all, comparison{"outage: growth of memory in MB", highest(o.Runs, growth), rule.MaxGrowthMB, false})
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no rule of the gate applies to a measurement")
	}
	broken := 0
	for _, c := range all {
		if !c.isMet() {
			broken++
		}
	}
	if broken > 0 {
		return all, fmt.Errorf("%d of %d figures do not pass the gate", broken, len(all))
	}
	return all, nil
}

// onSink reports whether a rule for a kind of broker applies to r.
func onSink(kind string, r *report) bool { return kind == "" || kind == r.Sink }

func (rule drainRule) apply(d drainTable) (all []comparison) {
	if rule.MaxPartitions != 0 && d.Case.allPartitions() > rule.MaxPartitions {
		return nil
	}
	against := rule.Against
	if against == "" {
		against = floorName
	}
	for _, codec := range d.Case.Compressions {
		ours, theirs := d.find(relayName, codec), d.find(against, codec)
		if ours == nil || len(ours.Runs) == 0 || !strings.Contains(d.Case.Name, rule.Case) || rule.Codec != "" && rule.Codec != codec {
			continue
		}
		name := fmt.Sprintf("%s, %s: ", d.Case.Name, codec)
		if theirs != nil {
			all = compare(all, name+"rows/s ÷ "+against, ours.Runs, theirs.Runs, rowRate, rule.MinRate, true)
			all = compare(all, name+"CPU ÷ "+against, ours.Runs, theirs.Runs, cpuPerMillion, rule.MaxCPU, false)
		}
		if rule.MaxRSSMB > 0 {
			all = append(all, comparison{name + "peak memory in MB", highest(ours.Runs, drainMemory), rule.MaxRSSMB, false})
		}
	}
	return all
}

func (rule latencyRule) apply(l latencyTable) (all []comparison) {
	ours, theirs := l.find(relayName), l.find(rule.Against)
	if ours == nil || len(ours.Runs) == 0 || rule.Rate != 0 && rule.Rate != l.Rate {
		return nil
	}
	name := fmt.Sprintf("%s/s: ", terminal.Number(l.Rate))
	if theirs != nil {
		all = compare(all, name+"p50 ÷ "+rule.Against, ours.Runs, theirs.Runs, p50, rule.MaxP50, false)
		all = compare(all, name+"p99 ÷ "+rule.Against, ours.Runs, theirs.Runs, p99, rule.MaxP99, false)
	}
	if rule.MaxRSSMB > 0 {
		all = append(all, comparison{name + "peak memory in MB", highest(ours.Runs, latencyMemory), rule.MaxRSSMB, false})
	}
	return all
}

// compare appends the ratio of a figure to all, if there is a limit and both have
// a common run.
func compare[T any](all []comparison, what string, ours, theirs series[T], of func(T) float64, limit float64, least bool) []comparison {
	x, ok := ratio(ours, theirs, of)
	if limit == 0 || !ok {
		return all
	}
	return append(all, comparison{what, x, limit, least})
}
