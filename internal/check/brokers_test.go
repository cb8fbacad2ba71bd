package check

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// nobody returns an address that nothing listens on.
func nobody(t *testing.T) string {
	t.Helper()
	port, err := serverproc.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Close)
	return port.Addr()
}

// silent returns the address of a server that accepts connections and never responds.
func silent(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func TestBrokers(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{Settings: limited()})
	t.Run("one of two is down", func(t *testing.T) {
		down := nobody(t)
		fake := kafkatest.Fake(t, kfake.NumBrokers(1))
		r := whole(t, srv, fake.Cluster)
		up := fake.Addrs
		r.set("sink.kafka.brokers", up[0]+","+down)
		expect(t, r, broken{title: "broker " + down, state: Doubt, says: "connection refused", mend: func(*testing.T, *rig) {
			r.set("sink.kafka.brokers", up[0])
		}})
	})
	t.Run("the only one is down", func(t *testing.T) {
		need.FullRun(t, "the client gives up after ten seconds")
		down := nobody(t)
		fake := kafkatest.Fake(t, kfake.NumBrokers(1))
		r := whole(t, srv, fake.Cluster)
		r.set("sink.kafka.brokers", down)
		expect(t, r, broken{title: "broker " + down, state: Failed, says: "connection refused", also: []string{positionRecord}, mend: func(*testing.T, *rig) {
			r.set("sink.kafka.brokers", fake.Addrs[0])
		}})
	})
	t.Run("advertised where it is not", func(t *testing.T) {
		wrong := nobody(t)
		fake := kafkatest.Fake(t, kfake.NumBrokers(1))
		r := whole(t, srv, fake.Cluster)
		var honest atomic.Bool
		t.Cleanup(func() { honest.Store(true) })
		fake.Control.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			fake.Control.KeepControl()
			if honest.Load() {
				return nil, nil, false
			}
			return elsewhere(req.(*kmsg.MetadataRequest), wrong)
		})
		unmet := r.unmet(t)
		c := unmet["advertised "+wrong]
		if c.State != Failed || !strings.Contains(c.Found, "broker 7 advertises this address") || !strings.Contains(c.Fix, "advertised.listeners of broker 7") {
			t.Errorf("%+v", unmet)
		}
	})
}

// elsewhere returns metadata with one broker, at addr, and no topic.
func elsewhere(req *kmsg.MetadataRequest, addr string) (kmsg.Response, error, bool) {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	host, port, _ := net.SplitHostPort(addr)
	n, err := strconv.Atoi(port)
	broker := kmsg.NewMetadataResponseBroker()
	broker.NodeID, broker.Host, broker.Port = 7, host, int32(n)
	resp.Brokers = append(resp.Brokers, broker)
	for _, topic := range req.Topics {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.ErrorCode = topic.Topic, 3
		resp.Topics = append(resp.Topics, t)
	}
	return resp, err, true
}

const (
	user     = "relay"
	password = "relay-secret"
)

// TestRights: a user with exactly the required rights gets no findings. If a right is missing, the check names it,
// and its command grants the right.
func TestRights(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Config{
		Users: map[string]string{user: password},
		Properties: map[string]string{
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":           "User:ANONYMOUS",
		},
	})
	srv := pgtest.Start(t, pgserver.Config{Settings: limited()})
	r := whole(t, srv, broker.Cluster)
	r.set("sink.kafka.brokers", broker.SASLAddr())
	r.set("sink.kafka.sasl.mechanism", "SCRAM-SHA-256")
	r.set("sink.kafka.sasl.user", user)
	r.set("sink.kafka.sasl.password", password)
	// mend runs a fix as the administrator, who needs no login.
	mend := func(t *testing.T, title string, fix string) {
		t.Helper()
		fix = strings.NewReplacer(broker.SASLAddr(), broker.Addrs[0], "--command-config <an administrator's> ", "").Replace(fix)
		fix, _, _ = strings.Cut(fix, "; or")
		kafkatest.RunCommand(t, fix)
		r.becomesMet(t, title)
	}
	first := r.unmet(t) // has all that is missing
	for _, step := range []struct{ title, says string }{
		{"topic TOPIC", "the user lacks Describe"},
		{"topic POSITIONS", "the user lacks Describe"},
		{"transactional id", "a second of records is duplicated"},
	} {
		c := first[step.title]
		if !strings.Contains(c.Found, step.says) {
			t.Fatalf("%s: %+v", step.title, c)
		}
		mend(t, step.title, c.Fix)
	}
	if unmet := r.unmet(t); len(unmet) > 0 {
		t.Errorf("with all rights: %+v", unmet)
	}
	rights := kadm.NewACLs().Topics(r.topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpWrite).Allow("User:" + user).AllowHosts("*")
	if _, err := broker.Admin(t).DeleteACLs(t.Context(), rights); err != nil {
		t.Fatal(err)
	}
	var c Condition
	for c.Fix == "" { // the broker needs a moment to apply the change
		c = r.unmet(t)["rights TOPIC"]
	}
	if c.State != Failed || c.Found != "the user lacks Write" {
		t.Errorf("%+v", c)
	}
	mend(t, "rights TOPIC", c.Fix)

	t.Run("missing topic that may not be created", func(t *testing.T) {
		was := r.positions
		defer func() { r.positions = was }()
		r.positions = kafkatest.UniqueName(t)
		c := r.unmet(t)["topic POSITIONS"]
		if c.State != Failed || !strings.Contains(c.Found, "lacks Describe") || !strings.Contains(c.Fix, "--operation Create") {
			t.Errorf("%+v", c)
		}
	})
	t.Run("probe", func(t *testing.T) {
		defer func() { r.change = func(*Config) {} }()
		r.change = func(c *Config) { c.Probe = true }
		c := r.unmet(t)["probe topic"]
		if c.State != Failed || !strings.Contains(c.Found, "may not") {
			t.Fatalf("%+v", c)
		}
		mend(t, "probe topic", c.Fix)
		if unmet := r.unmet(t); len(unmet) > 0 {
			t.Errorf("with all rights: %+v", unmet)
		}
		broker.AwaitNoTopic(t, ".probe-")
	})
	t.Run("wrong password", func(t *testing.T) {
		r.set("sink.kafka.sasl.password", "wrong-secret")
		unmet := r.unmet(t)
		c := unmet["broker "+broker.SASLAddr()]
		if c.State != Failed || !strings.Contains(c.Found, "SASL_AUTHENTICATION_FAILED") || !strings.Contains(c.Fix, "sink.kafka.sasl") || unmet["position record"].State != Doubt || len(unmet) != 2 {
			t.Errorf("%+v", unmet)
		}
		if text := fmt.Sprint(unmet); strings.Contains(text, "wrong-secret") || strings.Contains(text, password) {
			t.Error("a password is shown")
		}
	})
}

// TestBothSidesHang: Postgres and Kafka accept connections and do not respond. The check reports both, and ends.
func TestBothSidesHang(t *testing.T) {
	t.Parallel()
	r := whole(t, pgtest.Server(t), kafkatest.Fake(t, kfake.NumBrokers(1)).Cluster)
	r.change = func(c *Config) { c.Timeout = 3 * time.Second }
	r.set("source.dsn", fmt.Sprintf("postgres://cdc@%s/app?sslmode=disable", silent(t)))
	r.set("sink.kafka.brokers", silent(t))
	failed := make(map[string]bool)
	for _, c := range Run(t.Context(), r.config(t)) {
		if c.State == Failed && (strings.Contains(c.Found, "no response within 500ms") || strings.Contains(c.Found, "the time limit of 3s was over")) {
			failed[c.Group] = true
		} else if c.State == Met && c.Group != Configuration && !strings.HasSuffix(c.Name, "destinations") {
			t.Errorf("%+v", c)
		}
	}
	if !failed[Source] || !failed[Sink] {
		t.Errorf("failed: %v", failed)
	}
	if found := AtStart(t.Context(), r.config(t)); len(found) > 0 {
		t.Errorf("at the start: %+v", found)
	}
}

// TestHangs: one side accepts connections and does not respond. The check reports that, still checks the other
// side, and ends.
func TestHangs(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for requests to time out")
	srv := pgtest.Start(t, pgserver.Config{Settings: limited()})
	for _, tt := range []struct {
		name, key, value, hung string
		hidden                 string // the group with only that one condition
	}{
		{"Postgres", "source.dsn", "postgres://cdc@%s/app?sslmode=disable", "connection", Source},
		{"Kafka", "sink.kafka.brokers", "%s", "broker ", Sink},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := kafkatest.Fake(t, kfake.NumBrokers(1))
			r := whole(t, srv, fake.Cluster)
			r.set(tt.key, fmt.Sprintf(tt.value, silent(t)))
			others := 0
			for _, c := range Run(t.Context(), r.config(t)) {
				switch {
				case c.Group == tt.hidden && c.State == Failed && strings.HasPrefix(c.Title(), tt.hung):
					if !strings.Contains(c.Found, "no response within 10s") {
						t.Errorf("%+v", c)
					}
				case c.Group == tt.hidden && !strings.HasSuffix(c.Name, "destinations"):
					t.Errorf("%+v", c)
				case c.Group != tt.hidden && c.State == Met:
					others++
				}
			}
			if others < 8 {
				t.Errorf("%d conditions of the other side are reported", others)
			}
			if found := AtStart(t.Context(), r.config(t)); len(found) > 0 {
				t.Errorf("at the start: %+v", found)
			}
		})
	}
	t.Run("a lock in the catalog", func(t *testing.T) {
		fake := kafkatest.Fake(t, kfake.NumBrokers(1))
		r := whole(t, srv, fake.Cluster)
		tx, err := r.db.Conn(t).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "LOCK TABLE pg_publication IN ACCESS EXCLUSIVE MODE"); err != nil {
			t.Fatal(err)
		}
		met := make(map[string]bool)
		for _, c := range Run(t.Context(), r.config(t)) {
			met[c.Name] = c.State == Met
			if c.State == Failed && (c.Name != "catalog" || !strings.Contains(c.Found, "read the publication: ERROR: canceling statement due to lock timeout") || c.Fix == "") {
				t.Errorf("%+v", c)
			}
		}
		for _, name := range []string{"role", "slots left", "replication connection", "topic"} {
			if !met[name] {
				t.Errorf("%s is not known", name)
			}
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
