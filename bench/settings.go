package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

// settings are what the command line says.
type settings struct {
	suite string
	runs  int
	match *regexp.Regexp // names of drain cases; nil: all

	debezium bool
	only     []string  // names of contenders; nil: all
	relays   []program // nil: built from this tree

	sizes, perTransaction, rates []int // nil: the suite's
	compressions                 []string
	rows                         int // 0: the suite's
	flow                         time.Duration
	warmUp                       *time.Duration // nil: the suite's

	major         int
	dsn           string // empty: a server of our own
	brokers       []string
	pgRecvlogical string // path; empty: found

	json, markdown, gate string // files; empty: none
}

// A program is a build of the relay.
type program struct{ label, path string }

const (
	relayName = "outbox-cdc"
	floorName = "pg_recvlogical"
)

// parse returns flag.ErrHelp after it has printed the usage.
func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&s.suite, "suite", "quick", "what to measure:"+suiteList())
	f.IntVar(&s.runs, "runs", 3, "how often; figures are medians")
	f.Func("match", "measure only drains whose name matches this `regexp`", s.setMatch)
	f.Func("with", "a further contender: debezium", s.setWith)
	f.Func("only", "measure only these contenders: `names` separated by commas", listInto(&s.only, word))
	f.Func("relay", "measure this `[label=]path` instead of a fresh build; repeat it to compare builds", s.addRelay)

	f.Func("sizes", "payload sizes in `bytes`, separated by commas", listInto(&s.sizes, positive))
	f.Func("per-transaction", "`rows` a transaction, separated by commas; all is one transaction", listInto(&s.perTransaction, rowsOrAll))
	f.Func("compression", "`codecs` separated by commas: none, lz4, zstd, snappy, gzip", listInto(&s.compressions, word))
	f.IntVar(&s.rows, "rows", 0, "rows of each drain")
	f.Func("rates", "`transactions` per second of latency measurements, separated by commas", listInto(&s.rates, positive))
	f.Func("warm-up", "`duration` of uncounted drains before anything else", s.setWarmUp)
	f.DurationVar(&s.flow, "flow", 0, "how long a latency measurement lasts")

	f.IntVar(&s.major, "postgres", pgserver.Newest, "major `version` of the Postgres to start, 14 or later")
	f.StringVar(&s.dsn, "dsn", "", "a Postgres that runs already: `conninfo` of a superuser")
	f.Func("brokers", "a Kafka that runs already: `host:port` separated by commas", listInto(&s.brokers, word))
	f.StringVar(&s.pgRecvlogical, "pg-recvlogical", "", "`path` of pg_recvlogical")

	f.StringVar(&s.json, "json", "", "write everything measured to this `file`")
	f.StringVar(&s.markdown, "markdown", "", "write the tables to this `file` as well")
	f.StringVar(&s.gate, "gate", "", "fail when a rule of this `file` is broken")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return s, s.validate()
}

func (s *settings) validate() error {
	if s.runs < 1 {
		return errors.New("--runs must be at least 1")
	}
	if s.rows < 0 || s.flow < 0 {
		return errors.New("--rows and --flow must not be negative")
	}
	if s.major < pgserver.Oldest {
		return fmt.Errorf("--postgres must be at least %d", pgserver.Oldest)
	}
	_, err := s.plan()
	return err
}

// plan returns what is to be measured.
func (s *settings) plan() (plan, error) {
	all := suites()
	i := slices.IndexFunc(all, func(c suite) bool { return c.name == s.suite })
	if i < 0 {
		return plan{}, fmt.Errorf("unknown suite %q; there are:%s", s.suite, suiteList())
	}
	p := all[i].plan(s)
	p.warmUp = all[i].warmUp
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
		fmt.Fprintf(&lines, "\n%-12s %s", c.name, c.about)
	}
	return lines.String()
}

// matrix returns m with the dimensions that the command line names.
func (s *settings) matrix(m matrix) matrix {
	if s.sizes != nil {
		m.sizes = s.sizes
	}
	if s.perTransaction != nil {
		m.perTransaction = s.perTransaction
	}
	if s.compressions != nil {
		m.compressions = s.compressions
	}
	if s.rows != 0 {
		m.rows = s.rows
	}
	return m
}

func (s *settings) ratesOr(rates ...int) []int {
	if s.rates != nil {
		return s.rates
	}
	return rates
}

func (s *settings) flowOr(d time.Duration) time.Duration {
	if s.flow != 0 {
		return s.flow
	}
	return d
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

func (s *settings) setWith(value string) error {
	if value != "debezium" {
		return errors.New("only debezium can be added")
	}
	s.debezium = true
	return nil
}

func (s *settings) addRelay(value string) error {
	p := program{label: relayName, path: value}
	if label, path, ok := strings.Cut(value, "="); ok {
		p = program{label, path}
	}
	if slices.ContainsFunc(s.relays, func(have program) bool { return have.label == p.label }) {
		return fmt.Errorf("two programs called %s: say label=path", p.label)
	}
	s.relays = append(s.relays, p)
	return nil
}

// listInto returns a flag's function that parses values separated by commas.
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

func rowsOrAll(s string) (int, error) {
	if s == "all" {
		return giant, nil
	}
	return positive(s)
}
