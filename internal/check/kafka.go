package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// sizeInKafka is how large a record is, as a topic's max.message.bytes counts.
func sizeInKafka(rec *sink.Record) int { return kafka.Size(rec) }

// isRefusal reports whether the user may not do what was asked.
func isRefusal(err error) bool { return kafka.IsRefusal(err) }

// A kafkaLook looks at Kafka.
type kafkaLook struct {
	*look
	report

	cfg       kafka.Config
	inspector *kafka.Inspector
	brokers   []kafka.Broker
}

// lookAtKafka returns the conditions of the sink, if that is Kafka.
func (l *look) lookAtKafka(ctx context.Context) []Condition {
	cfg, ok := l.Relay.Sink.(kafka.Config)
	if !ok {
		return nil
	}
	s := &kafkaLook{look: l, report: report{group: Sink}, cfg: cfg}
	s.run(ctx)
	return s.conditions
}

func (s *kafkaLook) run(ctx context.Context) {
	inspector, err := kafka.NewInspector(s.cfg)
	if err != nil { // which the configuration has ruled out
		s.fail("broker", "", err.Error(), "")
		return
	}
	s.inspector = inspector
	defer inspector.Close()
	if !s.short && !s.reach(ctx, "broker", s.cfg.Brokers, s.unreached) {
		return
	}
	if !s.ask(ctx, &s.report, "cluster", "", func(ctx context.Context) (err error) {
		s.brokers, err = inspector.Brokers(ctx)
		return err
	}) {
		return
	}
	s.cluster(ctx)
	if !s.short {
		s.identity(ctx)
	}
	<-s.sampled
	s.topics(ctx)
	if !s.short {
		s.topicNames()
		s.sharing(ctx)
	}
	if s.Probe {
		s.probe(ctx)
	}
}

// An outcome is what became of the attempt to reach a broker.
type outcome struct {
	addr string
	err  error
}

// reach connects to each address and reports it under name; judge says what a failure is worth
// when others did or did not answer. It returns whether one answered.
func (s *kafkaLook) reach(ctx context.Context, name string, addrs []string, judge func(o outcome, others bool)) bool {
	ctx, cancel := context.WithTimeout(ctx, s.each)
	defer cancel()
	outcomes := make([]outcome, len(addrs))
	var all sync.WaitGroup
	for n, addr := range addrs {
		all.Go(func() {
			err := s.inspector.Reach(ctx, addr)
			if err != nil && ctx.Err() != nil {
				err = fmt.Errorf("no answer in %s", s.each)
			}
			outcomes[n] = outcome{addr, err}
		})
	}
	all.Wait()
	answered := slices.ContainsFunc(outcomes, func(o outcome) bool { return o.err == nil })
	for _, o := range outcomes {
		if o.err == nil {
			s.ok(name, o.addr, "answers"+s.manner())
		} else {
			judge(o, answered)
		}
	}
	return answered
}

// manner is how we are connected.
func (s *kafkaLook) manner() string {
	cfg, text := s.cfg, ""
	if cfg.TLS != nil {
		text = ", over TLS"
	}
	if cfg.SASL == nil {
		return text
	}
	text += ", logged in by " + cfg.SASL.Mechanism
	if cfg.SASL.User != "" {
		text += " as " + cfg.SASL.User
	}
	return text
}

// unreached judges a broker of sink.kafka.brokers.
func (s *kafkaLook) unreached(o outcome, others bool) {
	found, fix := s.describeFailure(o)
	switch {
	case fix != "":
		s.fail("broker", o.addr, found, fix)
	case others:
		s.warn("broker", o.addr, found, "start it, or take it out of sink.kafka.brokers: another one answers, so that is no hurry")
	default:
		s.fail("broker", o.addr, found, "start it, or correct sink.kafka.brokers and what lies between (DNS, firewall)")
	}
}

// describeFailure says what went wrong, and what mends it if that is not the network.
func (s *kafkaLook) describeFailure(o outcome) (found, fix string) {
	found = strings.TrimPrefix(strings.TrimPrefix(oneLine(o.err), sink.ErrAccess.Error()+": "), o.addr+": ")
	if errors.Is(o.err, sink.ErrAccess) {
		fix = "correct sink.kafka.tls or sink.kafka.sasl, or what the listener expects"
	}
	return found, fix
}

// cluster says how many brokers there are, and whether each is reached where it says it is.
func (s *kafkaLook) cluster(ctx context.Context) {
	var ids, addrs []string
	byAddr := make(map[string]int32)
	for _, b := range s.brokers {
		ids = append(ids, fmt.Sprintf("%d at %s", b.ID, b.Addr))
		byAddr[b.Addr] = b.ID
		if !slices.Contains(s.cfg.Brokers, b.Addr) {
			addrs = append(addrs, b.Addr)
		}
	}
	s.ok("cluster", "", "brokers "+strings.Join(ids, ", "))
	if s.short || len(addrs) == 0 {
		return
	}
	s.reach(ctx, "advertised", addrs, func(o outcome, _ bool) {
		found, _ := s.describeFailure(o)
		s.fail("advertised", o.addr, fmt.Sprintf("broker %d says that clients reach it there: %s", byAddr[o.addr], found),
			fmt.Sprintf("set advertised.listeners of broker %d to an address that can be reached from here, or let this one be reached", byAddr[o.addr]))
	})
}

// identity says whether the user may write with sequence numbers.
func (s *kafkaLook) identity(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, s.each)
	defer cancel()
	if err := s.inspector.MayWrite(limited); err != nil {
		s.fail("idempotent write", "", oneLine(err), s.acl("--operation IdempotentWrite --cluster")+"; or, from Kafka 2.8 on, Write on a topic")
		return
	}
	s.ok("idempotent write", "", "the user may write with sequence numbers")
}

// tool is the command line of one of Kafka's tools.
func (s *kafkaLook) tool(name, arguments string) string {
	cfg := s.cfg
	text := fmt.Sprintf("%s --bootstrap-server %s", name, cfg.Brokers[0])
	if cfg.TLS != nil || cfg.SASL != nil {
		text += " --command-config <an administrator's>"
	}
	return text + " " + arguments
}

// acl is the command that gives the user a right.
func (s *kafkaLook) acl(right string) string {
	principal := "<the relay's>"
	if login := s.cfg.SASL; login != nil && login.User != "" {
		principal = login.User
	}
	return s.tool("kafka-acls.sh", fmt.Sprintf("--add --allow-principal 'User:%s' %s", principal, right))
}
