package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// An inspection collects findings.
type inspection struct {
	sink.Findings

	cfg       Config
	use       sink.Use
	inspector *inspector
	brokers   []listedBroker
}

var (
	_ sink.Inspector = Config{}
	_ sink.Separator = Config{}
)

// Inspect implements [sink.Inspector]. With Probe, it creates a topic, and deletes it even if ctx has ended.
func (c Config) Inspect(ctx context.Context, use sink.Use) []sink.Finding {
	i := &inspection{cfg: c, use: use}
	inspector, err := newInspector(c)
	if err != nil { // package config has validated it
		i.Failed("broker", "", err.Error(), "")
		return i.Findings
	}
	i.inspector = inspector
	defer inspector.close()
	i.run(ctx)
	return i.Findings
}

func (i *inspection) run(ctx context.Context) {
	if !i.use.Short && !i.reach(ctx, "broker", i.cfg.Brokers, i.unreached) {
		return
	}
	if !i.ask(ctx, "cluster", "", func(ctx context.Context) (err error) {
		i.brokers, err = i.inspector.brokers(ctx)
		return err
	}) {
		return
	}
	i.cluster(ctx)
	if !i.use.Short {
		i.identity(ctx)
		i.ownership(ctx)
	}
	i.topics(ctx)
	if !i.use.Short {
		i.otherRelays(ctx)
	}
	if i.use.Probe {
		i.probe(ctx)
	}
}

// ask calls question with the time limit of one request, and reports whether it succeeded. If not, it adds a failed finding,
// except in a short inspection.
func (i *inspection) ask(ctx context.Context, condition, object string, question func(ctx context.Context) error) bool {
	err := i.use.Limits.Ask(ctx, question)
	if err != nil && !i.use.Short {
		i.Failed(condition, object, err.Error(), sink.AdviceOf(err))
	}
	return err == nil
}

// An outcome is the result of connecting to a broker.
type outcome struct {
	addr string
	err  error
}

// reach connects to each address and adds a finding with this condition for each. judge adds the finding for a failure;
// others says whether another address responded. reach returns whether one did.
func (i *inspection) reach(ctx context.Context, condition string, addrs []string, judge func(o outcome, others bool)) bool {
	ctx, cancel := context.WithTimeout(ctx, i.use.Limits.Request)
	defer cancel()
	outcomes := make([]outcome, len(addrs))
	var all sync.WaitGroup
	for n, addr := range addrs {
		all.Go(func() {
			err := i.inspector.reach(ctx, addr)
			if err != nil && ctx.Err() != nil {
				err = fmt.Errorf("no response within %s", i.use.Limits.Request)
			}
			outcomes[n] = outcome{addr, err}
		})
	}
	all.Wait()
	answered := slices.ContainsFunc(outcomes, func(o outcome) bool { return o.err == nil })
	for _, o := range outcomes {
		if o.err == nil {
			i.Met(condition, o.addr, "responds"+i.manner())
		} else {
			judge(o, answered)
		}
	}
	return answered
}

// manner describes TLS and login of the connections.
func (i *inspection) manner() string {
	cfg, text := i.cfg, ""
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

// unreached adds the finding about a broker of sink.kafka.brokers that did not respond.
func (i *inspection) unreached(o outcome, others bool) {
	found, fix := i.describeFailure(o)
	switch {
	case fix != "":
		i.Failed("broker", o.addr, found, fix)
	case others:
		i.Doubt("broker", o.addr, found, "start it, or remove it from sink.kafka.brokers; another broker responds, so this is not urgent")
	default:
		i.Failed("broker", o.addr, found, "start it, or fix sink.kafka.brokers or the network (DNS, firewall)")
	}
}

// describeFailure returns what went wrong, and the fix if the broker rejected the connection, or seems to have another kind of listener.
func (i *inspection) describeFailure(o outcome) (found, fix string) {
	found = strings.TrimPrefix(strings.TrimPrefix(o.err.Error(), errAccess.Error()+": "), o.addr+": ")
	if !errors.Is(o.err, sink.ErrUnreachable) {
		fix = sink.AdviceOf(o.err)
	}
	return found, fix
}

// cluster lists the brokers, and connects to those whose advertised address is not in sink.kafka.brokers.
func (i *inspection) cluster(ctx context.Context) {
	var ids, addrs []string
	byAddr := make(map[string]int32)
	for _, b := range i.brokers {
		ids = append(ids, fmt.Sprintf("%d at %s", b.id, b.addr))
		byAddr[b.addr] = b.id
		if !slices.Contains(i.cfg.Brokers, b.addr) {
			addrs = append(addrs, b.addr)
		}
	}
	i.Met("cluster", "", "brokers "+strings.Join(ids, ", "))
	if i.use.Short || len(addrs) == 0 {
		return
	}
	i.reach(ctx, "advertised", addrs, func(o outcome, _ bool) {
		found, _ := i.describeFailure(o)
		i.Failed("advertised", o.addr, fmt.Sprintf("broker %d advertises this address: %s", byAddr[o.addr], found),
			fmt.Sprintf("set advertised.listeners of broker %d to an address that this machine can reach, or make this address reachable", byAddr[o.addr]))
	})
}

// identity checks that the user gets a producer id, which idempotent writes need.
func (i *inspection) identity(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, i.use.Limits.Request)
	defer cancel()
	if err := i.inspector.mayWrite(limited); err != nil {
		i.Failed("idempotent write", "", err.Error(), i.cfg.grantCommand("--operation IdempotentWrite --cluster")+"; or, from Kafka 2.8 on, Write on a topic")
		return
	}
	i.Met("idempotent write", "", "the user gets a producer id")
}

// twice is what it costs if the relay does not recognize the rows that Kafka has.
const twice = "after a crash, about a second of records is duplicated"

// ownership checks whether the user may use the relay's transactional id.
func (i *inspection) ownership(ctx context.Context) {
	const name = "transactional id"
	if i.use.Positions == "" {
		i.Doubt(name, "", "not used without position_topic: "+twice, "set position_topic")
		return
	}
	limited, cancel := context.WithTimeout(ctx, i.use.Limits.Request)
	defer cancel()
	id := TransactionalID(i.use.Positions, i.use.Relay)
	switch err := i.inspector.mayOwn(limited, id); {
	case err == nil:
		i.Met(name, "", "the user may use "+id)
	case isRefusal(err):
		i.Doubt(name, "", err.Error()+": "+twice, i.cfg.grantCommand("--operation Write --operation Describe --transactional-id "+id))
	default:
		i.Doubt(name, "", err.Error()+": "+twice, "use brokers that have transactions, and whose topic __transaction_state has leaders")
	}
}
