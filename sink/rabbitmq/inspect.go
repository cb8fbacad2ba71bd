package rabbitmq

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// slowConnect is how long a first connection usually takes at most.
const slowConnect = 2 * time.Second

// Conditions implements [sink.Inspector].
func (Config) Conditions() []sink.Condition {
	return []sink.Condition{
		{Name: "connection", Object: "server", Met: "The server accepts a connection with TLS and login, within two seconds.", Short: true},
		{Name: "destination", Object: "destination", Met: "The exchange or queue exists, and the user may write to it."},
		{Name: "size", Object: "destination", Met: "`sink.rabbitmq.max_message_bytes` allows a record as large as the largest of the last rows."},
	}
}

// Inspect implements [sink.Inspector].
func (c Config) Inspect(ctx context.Context, use sink.Use) []sink.Finding {
	servers := c.withDefaults().newDialer()
	findings, k := servers.inspect(ctx)
	if k == nil {
		return findings
	}
	defer k.close()
	defer context.AfterFunc(ctx, servers.network.Abort)()
	if use.Short {
		return findings
	}
	largest := make(map[string]int)
	var names []string
	for _, d := range use.Destinations {
		names = append(names, d.Name)
		largest[d.Name] = d.Largest.Size()
	}
	if use.DeadLetters != "" {
		names = append(names, use.DeadLetters)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		findings = append(findings, c.inspectDestination(k, name))
		if limit := c.MaxMessageBytes; limit > 0 && largest[name] > limit {
			findings = append(findings, sink.Finding{
				Condition: "size", Object: name, State: sink.Doubt,
				Found: fmt.Sprintf("Key, value and headers of a record have %d bytes, and payloads may have %d.", largest[name], limit),
				Fix:   "Increase sink.rabbitmq.max_message_bytes.",
			})
		}
	}
	return findings
}

// inspect tests every server, and returns a connection to one of them, or nil.
func (d *dialer) inspect(ctx context.Context) ([]sink.Finding, *connection) {
	var findings []sink.Finding
	var first *connection
	failures := 0
	for _, addr := range d.Servers {
		start := time.Now()
		k, err := d.connect(ctx, addr)
		f := sink.Finding{Condition: "connection", Object: addr}
		switch took := time.Since(start); {
		case err != nil:
			failures++
			f.State, f.Found, f.Fix = sink.Failed, fmt.Sprintf("No connection: %v.", err), cmp.Or(sink.AdviceOf(err), "Check the address, the firewall and TLS.")
		case took > slowConnect:
			f.State, f.Found = sink.Doubt, fmt.Sprintf("%s, connected after %s.", k.product(), took.Round(time.Millisecond))
		default:
			f.Found = k.product() + "."
		}
		if err == nil && first == nil {
			first = k
		} else if err == nil {
			k.close()
		}
		findings = append(findings, f)
	}
	if first != nil && failures > 0 { // the relay works with the others
		for i := range findings {
			findings[i].State = min(findings[i].State, sink.Doubt)
		}
	}
	return findings, first
}

// product returns the name and the version of the broker.
func (k *connection) product() string {
	product, _ := k.Properties["product"].(string)
	version, _ := k.Properties["version"].(string)
	return product + " " + version
}

func (c Config) inspectDestination(k *connection, name string) sink.Finding {
	d, _ := splitDestination(name)
	f := sink.Finding{Condition: "destination", Object: name}
	err := k.checkDestination(d, c.User)
	switch {
	case err != nil:
		f.State, f.Found = sink.Failed, fmt.Sprintf("No message can be written: %v.", err)
		f.Fix = cmp.Or(sink.AdviceOf(err), "Check the log of the broker.")
	case d.exchange == "":
		f.Found = fmt.Sprintf("The %s exists, and the user may write to it.", d)
	default:
		f.Found = fmt.Sprintf("The %s exists, and the user may write to it. AMQP does not show whether a queue is bound to it.", d)
	}
	return f
}
