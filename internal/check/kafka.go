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

// sizeInKafka returns the size of a record as max.message.bytes of a topic counts it.
func sizeInKafka(rec *sink.Record) int {
	if rec == nil {
		return 0
	}
	return kafka.Size(rec)
}

// isRefusal reports whether the user lacks the right for a request.
func isRefusal(err error) bool { return kafka.IsRefusal(err) }

// A kafkaChecker checks Kafka.
type kafkaChecker struct {
	*checker
	report

	cfg       kafka.Config
	inspector *kafka.Inspector
	brokers   []kafka.Broker
}

// checkKafka returns the conditions of the sink, which are those of [sinkDefinitions], if the broker is Kafka.
func (ck *checker) checkKafka(ctx context.Context) (conditions []Condition, isKafka bool) {
	cfg, isKafka := ck.Relay.Sink.(kafka.Config)
	if !isKafka {
		return nil, false
	}
	s := &kafkaChecker{checker: ck, report: report{group: Sink}, cfg: cfg}
	s.run(ctx)
	return ck.defined(s.conditions), true
}

func (s *kafkaChecker) run(ctx context.Context) {
	inspector, err := kafka.NewInspector(s.cfg)
	if err != nil { // package config has validated it
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
		s.ownership(ctx)
	}
	<-s.sampled
	s.topics(ctx)
	if !s.short {
		s.sharing(ctx)
	}
	if s.Probe {
		s.probe(ctx)
	}
}

// An outcome is the result of connecting to a broker.
type outcome struct {
	addr string
	err  error
}

// reach connects to each address and adds a condition with this name for each. judge adds the condition for a failure;
// others says whether another address responded. reach returns whether one did.
func (s *kafkaChecker) reach(ctx context.Context, name string, addrs []string, judge func(o outcome, others bool)) bool {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Request)
	defer cancel()
	outcomes := make([]outcome, len(addrs))
	var all sync.WaitGroup
	for n, addr := range addrs {
		all.Go(func() {
			err := s.inspector.Reach(ctx, addr)
			if err != nil && ctx.Err() != nil {
				err = fmt.Errorf("no response within %s", s.limits.Request)
			}
			outcomes[n] = outcome{addr, err}
		})
	}
	all.Wait()
	answered := slices.ContainsFunc(outcomes, func(o outcome) bool { return o.err == nil })
	for _, o := range outcomes {
		if o.err == nil {
			s.ok(name, o.addr, "responds"+s.manner())
		} else {
			judge(o, answered)
		}
	}
	return answered
}

// manner describes TLS and login of the connections.
func (s *kafkaChecker) manner() string {
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

// unreached adds the condition of a broker of sink.kafka.brokers that did not respond.
func (s *kafkaChecker) unreached(o outcome, others bool) {
	found, fix := s.describeFailure(o)
	switch {
	case fix != "":
		s.fail("broker", o.addr, found, fix)
	case others:
		s.warn("broker", o.addr, found, "start it, or remove it from sink.kafka.brokers; another broker responds, so this is not urgent")
	default:
		s.fail("broker", o.addr, found, "start it, or fix sink.kafka.brokers or the network (DNS, firewall)")
	}
}

// describeFailure returns what went wrong, and the fix if the broker rejected the connection, or seems to have another kind of listener.
func (s *kafkaChecker) describeFailure(o outcome) (found, fix string) {
	found = strings.TrimPrefix(strings.TrimPrefix(oneLine(o.err), sink.ErrAccess.Error()+": "), o.addr+": ")
	if !errors.Is(o.err, sink.ErrUnreachable) {
		fix = sink.AdviceOf(o.err)
	}
	return found, fix
}

// cluster lists the brokers, and connects to those whose advertised address is not in sink.kafka.brokers.
func (s *kafkaChecker) cluster(ctx context.Context) {
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
		s.fail("advertised", o.addr, fmt.Sprintf("broker %d advertises this address: %s", byAddr[o.addr], found),
			fmt.Sprintf("set advertised.listeners of broker %d to an address that this machine can reach, or make this address reachable", byAddr[o.addr]))
	})
}

// identity checks that the user gets a producer id, which idempotent writes need.
func (s *kafkaChecker) identity(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, s.limits.Request)
	defer cancel()
	if err := s.inspector.MayWrite(limited); err != nil {
		s.fail("idempotent write", "", oneLine(err), s.cfg.GrantCommand("--operation IdempotentWrite --cluster")+"; or, from Kafka 2.8 on, Write on a topic")
		return
	}
	s.ok("idempotent write", "", "the user gets a producer id")
}

// twice is what it costs if the relay does not recognize the rows that Kafka has.
const twice = "after a crash, about a second of records is sent twice"

func (s *kafkaChecker) transactionalID() string {
	return kafka.TransactionalID(s.Relay.Positions.Topic, s.Relay.Name)
}

// ownership checks whether the user may use the relay's transactional id.
func (s *kafkaChecker) ownership(ctx context.Context) {
	const name = "transactional id"
	if s.Relay.Positions.Topic == "" {
		s.warn(name, "", "not used without position_topic: "+twice, "set position_topic")
		return
	}
	limited, cancel := context.WithTimeout(ctx, s.limits.Request)
	defer cancel()
	id := s.transactionalID()
	switch err := s.inspector.MayOwn(limited, id); {
	case err == nil:
		s.ok(name, "", "the user may use "+id)
	case kafka.IsRefusal(err):
		s.warn(name, "", oneLine(err)+": "+twice, s.cfg.GrantCommand("--operation Write --operation Describe --transactional-id "+id))
	default:
		s.warn(name, "", oneLine(err)+": "+twice, "use brokers that have transactions, and whose topic __transaction_state has leaders")
	}
}
