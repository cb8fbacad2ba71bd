package config

import (
	"fmt"
	"net"
	"slices"
	"strings"
)

// hostPortPattern matches host:port.
const hostPortPattern = `^(\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+):[0-9]{1,5}$`

// checkUser reports a user without a password, and the reverse, in the section at.
func (c *Config) checkUser(at string) error {
	user, password := !c.field(at+"user").IsZero(), !c.field(at+"password").IsZero() || c.files[at+"password"] != ""
	switch {
	case user && !password:
		return c.invalid(at+"user", "requires %spassword or %spassword_file", at, at)
	case password && !user:
		return c.invalid(at+"password", "has no effect: %suser is not set", at)
	}
	return nil
}

// linkWarnings returns what is legal and rarely intended about connections to servers, host:port each. The section at has
// keys for TLS and may have a password. title is the broker's.
func (c *Config) linkWarnings(title, at string, servers []string) []string {
	remote := slices.ContainsFunc(servers, func(server string) bool {
		host, _, _ := net.SplitHostPort(server)
		return !isThisMachine(host)
	})
	hasLogin := slices.ContainsFunc(keys, func(k key) bool {
		return k.kind == secret && strings.HasPrefix(k.path, at) && !c.field(k.path).IsZero()
	})
	switch encrypted := c.field(at + "tls.enabled").Bool(); {
	case encrypted && c.field(at+"tls.insecure_skip_verify").Bool():
		return []string{fmt.Sprintf("the certificates of %s are not verified", title)}
	case encrypted, !remote:
	case hasLogin:
		return []string{fmt.Sprintf("the login to %s is not encrypted on the network: set %stls.enabled", title, at)}
	case !c.isSet(at + "tls.enabled"):
		return []string{fmt.Sprintf("records to %s are not encrypted on the network: set %stls.enabled to true, or to false to accept it", title, at)}
	}
	return nil
}
