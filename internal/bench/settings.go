package bench

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

// settings are the flags of the command line.
type settings struct {
	environ []string
	config  *command.Settings // configuration of the servers
	codec   string            // codec of the configuration, used without --compression

	ownServers  bool
	sink        string                 // kind of the broker that --own-servers starts
	major       int                    // major version of our own Postgres
	given       func(flag string) bool // reports whether the command line has a flag
	keep        bool
	suite       string
	runs        int
	match       *regexp.Regexp // names of drain cases; nil: all
	debezium    bool
	only        []string  // names of contenders; nil: all
	relays      []program // nil: found or built
	recvlogical string    // path of pg_recvlogical; empty: found

	payloads, perTransaction, rates []int // nil: the suite's
	compressions                    []string
	rows, keys, topics, partitions  int // 0: the suite's
	duration                        time.Duration
	warmUp                          *time.Duration // nil: the suite's
	outage                          time.Duration  // 0: none
	outageRows                      int

	json, markdown, gate string // files; empty: none
}

// A program is a build of the relay.
type program struct{ label, path string }

// hourRows are the rows of an hour at 100/s.
const hourRows = 360_000

const (
	relayName = "outbox-cdc"
	floorName = "pg_recvlogical"
)

// flags adds the flags of s to cmd.
func (s *settings) flags(cmd *cobra.Command) {
	s.config = command.ConfigFlags(cmd, "dsn", "brokers")
	f := cmd.Flags()
	s.given, s.codec = f.Changed, uncompressed
	f.BoolVar(&s.ownServers, "own-servers", false, "start a Postgres and a broker for the measurement")
	f.StringVar(&s.sink, "sink", kafkaKind, "`kind` of the broker that --own-servers starts: "+strings.Join(kindNames(), ", "))
	f.IntVar(&s.major, "postgres", pgserver.Newest, "major `version` of the Postgres that --own-servers starts, 14 or later")
	f.BoolVar(&s.keep, "keep", false, "leave schemas, publications and topics behind, and print how to drop them")

	f.StringVar(&s.suite, "suite", "quick", "what to measure: `name` of a suite, see above")
	f.IntVar(&s.runs, "runs", 3, "how often; figures are medians")
	f.Func("match", "measure only drains whose name matches this `regexp`", s.setMatch)
	f.BoolVar(&s.debezium, "debezium", false, "measure Debezium, too, with its defaults and tuned")
	f.Func("only", "measure only these contenders: `names` separated by commas", listInto(&s.only, word))
	f.Func("relay", "measure this `[label=]path`; repeat it to compare builds", s.addRelay)
	f.StringVar(&s.recvlogical, "pg-recvlogical", "", "`path` of pg_recvlogical, if it is in no usual place")

	f.IntVar(&s.rows, "rows", 0, "`rows` in the slot before it is drained")
	f.Func("payload", "`bytes` of JSON in each row, separated by commas", listInto(&s.payloads, positive))
	f.Func("per-transaction", "`rows` in each transaction of a drain, separated by commas; all is one transaction", listInto(&s.perTransaction, rowsOrAll))
	f.IntVar(&s.keys, "keys", 0, "distinct aggregates; 0 is 10 for each partition, but at least 1000")
	f.IntVar(&s.topics, "topics", 0, "`topics` of the rows, not in suites scale and partitions; 0 is 1. A plain producer writes two records to each partition before the measurements")
	f.IntVar(&s.partitions, "partitions", 0, "`partitions` of each topic, not in suites scale and partitions; 0 is 12")
	f.Func("compression", "`codecs` separated by commas, in place of sink.kafka.compression", listInto(&s.compressions, word))
	f.Func("rate", "`transactions` of one row per second, separated by commas, for latency; 0 for none", listInto(&s.rates, notNegative))
	f.DurationVar(&s.duration, "duration", 0, "how long each rate is held, and idling is watched, at least 1s")
	f.Func("warm-up", "`duration` of uncounted drains before anything else", s.setWarmUp)

	f.DurationVar(&s.outage, "outage", 0, "with --own-servers, also take the broker away for this `duration`, and watch the relay's memory")
	f.IntVar(&s.outageRows, "outage-rows", hourRows, "`rows` that are written evenly during the outage; the default is an hour at 100/s")

	f.StringVar(&s.json, "json", "", "write everything measured to this `file`; - is standard output, in place of the tables")
	f.StringVar(&s.markdown, "markdown", "", "write the tables to this `file`, too")
	f.StringVar(&s.gate, "gate", "", "fail if a rule of this `file` is broken")
}

func (s *settings) validate() error {
	s.rates = slices.DeleteFunc(s.rates, func(rate int) bool { return rate == 0 })
	switch {
	case s.runs < 1:
		return errors.New("--runs must be at least 1")
	case s.rows < 0 || s.keys < 0 || s.topics < 0 || s.partitions < 0:
		return errors.New("--rows, --keys, --topics and --partitions must not be negative")
	case s.duration != 0 && s.duration < time.Second:
		return errors.New("--duration must be at least 1s")
	case s.major < pgserver.Oldest:
		return fmt.Errorf("--postgres must be at least %d", pgserver.Oldest)
	case s.given("postgres") && !s.ownServers:
		return errors.New("--postgres is for --own-servers")
	}
	if err := s.validateBroker(); err != nil {
		return err
	}
	p, err := s.plan()
	if err != nil {
		return err
	}
	for _, c := range p.drains {
		if err := c.load().Validate(); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

func (s *settings) validateBroker() error {
	_, known := kinds()[s.sink]
	switch {
	case !known:
		return fmt.Errorf("unknown --sink %q; there are: %s", s.sink, strings.Join(kindNames(), ", "))
	case s.given("sink") && !s.ownServers:
		return errors.New("--sink is for --own-servers; on your servers, the configuration says which broker it is")
	case s.sink != kafkaKind && slices.ContainsFunc([]string{"brokers", "compression", "topics", "partitions", "debezium"}, s.given):
		return errors.New("--brokers, --compression, --topics, --partitions and --debezium are for Kafka")
	case s.outage < 0 || s.outageRows < 1:
		return errors.New("--outage and --outage-rows must be positive")
	case s.outage > 0 && (!s.ownServers || s.given("brokers")):
		return errors.New("--outage is for --own-servers: it takes a broker away that nobody else uses")
	}
	return nil
}

// kindNames returns the values of --sink.
func kindNames() []string { return slices.Sorted(maps.Keys(kinds())) }

// plan returns the plan of the suite and the flags.
func (s *settings) plan() (plan, error) {
	all := suites()
	i := slices.IndexFunc(all, func(c suite) bool { return c.name == s.suite })
	if i < 0 {
		return plan{}, fmt.Errorf("unknown suite %q; there are:\n%s", s.suite, suiteList())
	}
	p := all[i].plan(s)
	p.warmUp, p.outage, p.over = all[i].warmUp, s.outage, s.spread()
	if s.warmUp != nil {
		p.warmUp = *s.warmUp
	}
	if s.match != nil {
		p.drains = slices.DeleteFunc(p.drains, func(c drainCase) bool { return !s.match.MatchString(c.Name) })
		p.rates, p.startUp, p.idle = nil, false, 0
		if len(p.drains) == 0 {
			return plan{}, fmt.Errorf("no drain of suite %s matches %q", s.suite, s.match)
		}
	}
	return p, nil
}

func suiteList() string {
	var lines strings.Builder
	for _, c := range suites() {
		fmt.Fprintf(&lines, "  %-12s %s\n", c.name, c.about)
	}
	return strings.TrimRight(lines.String(), "\n")
}

// matrix returns m with the dimensions of the command line.
func (s *settings) matrix(m matrix) matrix {
	if s.payloads != nil {
		m.payloads = s.payloads
	}
	if s.perTransaction != nil {
		m.perTransaction = s.perTransaction
	}
	if s.compressions != nil {
		m.compressions = s.compressions
	}
	m.rows = cmp.Or(s.rows, m.rows)
	m.over = s.spread()
	return m
}

// spread returns the keys, topics and partitions of the flags.
func (s *settings) spread() Spread {
	over := spreadOver(cmp.Or(s.topics, 1), int32(cmp.Or(s.partitions, somePartitions)))
	over.Keys = cmp.Or(s.keys, over.Keys)
	return over
}

func (s *settings) ratesOr(rates ...int) []int {
	if s.rates != nil {
		return s.rates
	}
	return rates
}

func (s *settings) setWarmUp(value string) error {
	d, err := time.ParseDuration(value)
	s.warmUp = &d
	return err
}

func (s *settings) setMatch(value string) (err error) {
	s.match, err = regexp.Compile(value)
	return err
}

func (s *settings) addRelay(value string) error {
	p := program{label: relayName, path: value}
	if label, path, ok := strings.Cut(value, "="); ok {
		p = program{label, path}
	}
	if slices.ContainsFunc(s.relays, func(have program) bool { return have.label == p.label }) {
		return fmt.Errorf("two programs have the label %s: use label=path", p.label)
	}
	s.relays = append(s.relays, p)
	return nil
}

// listInto returns the function of a flag that parses comma-separated values.
func listInto[T any](list *[]T, parse func(string) (T, error)) func(string) error {
	return func(value string) error {
		*list = nil
		for part := range strings.SplitSeq(value, ",") {
			v, err := parse(strings.TrimSpace(part))
			if err != nil {
				return err
			}
			*list = append(*list, v)
		}
		return nil
	}
}

func word(s string) (string, error) {
	if s == "" {
		return "", errors.New("an empty entry")
	}
	return s, nil
}

func positive(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a positive number", s)
	}
	return n, nil
}

func notNegative(s string) (int, error) {
	if s == "0" {
		return 0, nil
	}
	return positive(s)
}

func rowsOrAll(s string) (int, error) {
	if s == "all" {
		return giant, nil
	}
	return positive(s)
}
