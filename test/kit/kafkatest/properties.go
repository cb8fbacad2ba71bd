package kafkatest

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// A listener is a listener of the broker.
type listener struct {
	name       string
	port       *serverproc.Port
	advertised string // host:port in advertised.listeners
}

const (
	plaintext  = "PLAINTEXT"
	controller = "CONTROLLER"
	saslPlain  = "SASL_PLAINTEXT"
	saslTLS    = "SASL_SSL"
	tlsOnly    = "SSL"
	proxied    = "PROXIED" // followed by a number
)

// SASLAddr returns the address of the SASL_PLAINTEXT listener, which the broker has if Config.Users is set.
func (s *Server) SASLAddr() string { return s.addr(saslPlain) }

// TLSAddr returns the address of the listener with TLS, which the broker has if Config.TLS is set.
func (s *Server) TLSAddr() string {
	if a := s.addr(tlsOnly); a != "" {
		return a
	}
	return s.addr(saslTLS)
}

// TLSConfig returns a client configuration that trusts the broker's certificate
// and has a client certificate. Config.TLS must be set.
func (s *Server) TLSConfig() *tls.Config { return s.tls.client() }

func (s *Server) addr(name string) string {
	for _, l := range s.listeners {
		if l.name == name {
			return l.port.Addr()
		}
	}
	return ""
}

func (s *Server) reservePorts(cfg Config) error {
	for _, name := range listenerNames(cfg) {
		port, err := serverproc.ReservePort()
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, listener{name: name, port: port, advertised: port.Addr()})
	}
	for i, proxy := range cfg.Proxies {
		port, err := serverproc.ReservePort()
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, listener{name: proxied + strconv.Itoa(i), port: port, advertised: proxy.Addr()})
		proxy.Redirect(port.Addr())
	}
	s.Cluster = &Cluster{Addrs: []string{s.addr(plaintext)}}
	return nil
}

// configure writes server.properties.
func (s *Server) configure(cfg Config) error {
	props := s.baseProperties()
	if cfg.Joins != nil {
		s.clusterID = cfg.Joins.clusterID
		maps.Copy(props, cfg.Joins.memberProperties())
	}
	if cfg.TLS {
		s.tls = newCertificates()
		maps.Copy(props, s.tls.properties())
	}
	if len(cfg.Users) > 0 {
		maps.Copy(props, saslProperties(cfg))
	}
	maps.Copy(props, cfg.Properties)
	return WriteProperties(s.properties(), props)
}

func listenerNames(cfg Config) []string {
	names := []string{plaintext}
	if cfg.Joins == nil {
		names = append(names, controller)
	}
	switch {
	case len(cfg.Users) > 0 && cfg.TLS:
		names = append(names, saslPlain, saslTLS)
	case len(cfg.Users) > 0:
		names = append(names, saslPlain)
	case cfg.TLS:
		names = append(names, tlsOnly)
	}
	return names
}

// baseProperties returns the properties of a single node that starts, stops and
// restarts quickly.
func (s *Server) baseProperties() map[string]string {
	var listeners, advertised []string
	protocols := []string{"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL"}
	for _, l := range s.listeners {
		listeners = append(listeners, l.name+"://"+l.port.Addr())
		if strings.HasPrefix(l.name, proxied) {
			protocols = append(protocols, l.name+":"+plaintext)
		}
		if l.name != controller {
			advertised = append(advertised, l.name+"://"+l.advertised)
		}
	}
	return map[string]string{
		"process.roles":                                    "broker,controller",
		"node.id":                                          "1",
		"controller.quorum.voters":                         "1@" + s.addr(controller),
		"listeners":                                        strings.Join(listeners, ","),
		"advertised.listeners":                             strings.Join(advertised, ","),
		"controller.listener.names":                        controller,
		"inter.broker.listener.name":                       plaintext,
		"listener.security.protocol.map":                   strings.Join(protocols, ","),
		"log.dirs":                                         filepath.Join(s.dir.Path(), "data"),
		"num.partitions":                                   strconv.Itoa(defaultPartitions),
		"auto.create.topics.enable":                        "false",
		"offsets.topic.replication.factor":                 "1",
		"offsets.topic.num.partitions":                     "4",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"transaction.state.log.num.partitions":             "4",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
		"log.segment.delete.delay.ms":                      "1000",
		// The controller unfences a killed broker only after its old session has
		// expired: 9 s by default.
		"broker.session.timeout.ms":    "3000",
		"broker.heartbeat.interval.ms": "500",
	}
}

// memberProperties returns the properties that make another broker a member of the cluster that s controls.
func (s *Server) memberProperties() map[string]string {
	return map[string]string{
		"process.roles":            "broker",
		"node.id":                  strconv.Itoa(int(s.members.Add(1)) + 1),
		"controller.quorum.voters": "1@" + s.addr(controller),
	}
}

func saslProperties(cfg Config) map[string]string {
	const mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
	var plain strings.Builder
	plain.WriteString("org.apache.kafka.common.security.plain.PlainLoginModule required")
	for _, name := range sortedKeys(cfg.Users) {
		fmt.Fprintf(&plain, " user_%s=%q", name, cfg.Users[name])
	}
	plain.WriteString(";")
	const scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"

	props := map[string]string{"sasl.enabled.mechanisms": mechanisms}
	for _, l := range []string{"sasl_plaintext", "sasl_ssl"} {
		props["listener.name."+l+".plain.sasl.jaas.config"] = plain.String()
		props["listener.name."+l+".scram-sha-256.sasl.jaas.config"] = scram
		props["listener.name."+l+".scram-sha-512.sasl.jaas.config"] = scram
	}
	return props
}

// WriteProperties writes a file that java.util.Properties can read. The keys must
// not contain a space, '=' or ':'. The values must not begin with a space.
func WriteProperties(path string, props map[string]string) error {
	escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	var text strings.Builder
	for _, k := range sortedKeys(props) {
		fmt.Fprintf(&text, "%s=%s\n", k, escape.Replace(props[k]))
	}
	return os.WriteFile(path, []byte(text.String()), 0o600)
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// newClusterID returns 16 random bytes in the format of Kafka's Uuid. The first
// byte is fixed, so that the id does not begin with a dash, which a command line
// would parse as an option.
func newClusterID() string {
	id := make([]byte, 16)
	rand.Read(id)
	id[0] = 1
	return base64.RawURLEncoding.EncodeToString(id)
}
