package webhook

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	// maxDestination is the maximum length of the name of a destination. Many servers allow URLs of 2 to 8 kB.
	maxDestination = 1024

	// maxAddresses is the maximum number of destinations that addresses remembers.
	maxAddresses = 16_384
)

// Names are the rules for names of destinations: what Config.URL and Config.Origins allow.
type Names struct{ addresses *addresses }

// Names returns the rules for names of destinations, or an error for an invalid URL or origin.
func (c Config) Names() (Names, error) {
	a, err := newAddresses(c)
	return Names{a}, err
}

// Illegal returns why records cannot be sent to a destination of this name, or "" if they can.
func (n Names) Illegal(name string) string {
	_, illegal := n.addresses.find(name)
	return illegal
}

// An address is the URL of a destination.
type address struct {
	url     *url.URL
	server  string // scheme and host
	trusted bool   // named in the configuration without a wildcard
}

// addresses maps destinations to their URLs.
type addresses struct {
	base    *url.URL // without a slash at the end of the path; nil: none
	origins []origin

	mu    sync.RWMutex
	known map[string]*address
}

func newAddresses(c Config) (*addresses, error) {
	a := &addresses{known: make(map[string]*address)}
	if c.URL == "" && len(c.Origins) == 0 {
		return nil, errors.New("sink: URL and Origins are empty")
	}
	if c.URL != "" {
		u, illegal := parseURL(c.URL)
		if illegal != "" {
			return nil, fmt.Errorf("sink: URL %s", illegal)
		}
		u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
		a.base = u
	}
	for _, text := range c.Origins {
		o, err := parseOrigin(text)
		if err != nil {
			return nil, err
		}
		a.origins = append(a.origins, o)
	}
	return a, nil
}

// find returns the address of a destination, or why it has none. The reason does not contain the name.
func (a *addresses) find(name string) (found *address, illegal string) {
	a.mu.RLock()
	found = a.known[name]
	a.mu.RUnlock()
	if found != nil {
		return found, ""
	}
	switch {
	case name == "":
		return nil, "is empty"
	case len(name) > maxDestination:
		return nil, fmt.Sprintf("has %d bytes, more than %d", len(name), maxDestination)
	case strings.Contains(name, "://"):
		found, illegal = a.complete(name)
	case a.base == nil:
		return nil, "is not a URL, and there is no base URL"
	default:
		found, illegal = a.below(name)
	}
	if illegal != "" {
		return nil, illegal
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= maxAddresses {
		clear(a.known)
	}
	a.known[strings.Clone(name)] = found
	return found, ""
}

// below returns the address of a path below the base URL.
func (a *addresses) below(path string) (*address, string) {
	if !utf8.ValidString(path) || strings.ContainsFunc(path, isControl) {
		return nil, "has characters that a URL cannot have"
	}
	var escaped []string
	for segment := range strings.SplitSeq(path, "/") {
		switch segment {
		case "":
			return nil, "has an empty segment, or a slash at its beginning or end"
		case ".", "..":
			return nil, "has a segment . or .."
		}
		escaped = append(escaped, url.PathEscape(segment))
	}
	u := *a.base
	u.RawPath = a.base.EscapedPath() + "/" + strings.Join(escaped, "/")
	u.Path += "/" + path
	return &address{url: &u, server: u.Scheme + "://" + u.Host, trusted: true}, ""
}

// complete returns the address of a complete URL.
func (a *addresses) complete(text string) (*address, string) {
	u, illegal := parseURL(text)
	if illegal != "" {
		return nil, illegal
	}
	allowed, trusted := false, a.base != nil && u.Scheme == a.base.Scheme && u.Host == a.base.Host
	for _, o := range a.origins {
		if o.matches(u) {
			allowed, trusted = true, trusted || !o.isPattern()
		}
	}
	if !allowed {
		return nil, "is a URL of a server that the configuration does not allow"
	}
	return &address{url: u, server: u.Scheme + "://" + u.Host, trusted: trusted}, ""
}

// single reports whether all destinations are on one server.
func (a *addresses) single() bool {
	return a.base != nil && len(a.origins) == 0 || a.base == nil && len(a.origins) == 1 && !a.origins[0].isPattern()
}

// contacts returns a URL of each server that is named without a wildcard.
func (a *addresses) contacts() []*url.URL {
	var all []*url.URL
	add := func(u *url.URL) {
		if !slices.ContainsFunc(all, func(known *url.URL) bool { return known.Scheme == u.Scheme && known.Host == u.Host }) {
			all = append(all, u)
		}
	}
	if a.base != nil {
		u := *a.base
		if u.Path == "" {
			u.Path = "/"
		}
		add(&u)
	}
	for _, o := range a.origins {
		if !o.isPattern() {
			add(o.url())
		}
	}
	return all
}

// parseURL parses a URL that a request may be sent to, or returns what is wrong with it.
func parseURL(text string) (u *url.URL, illegal string) {
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }) {
		return nil, "has characters that a URL cannot have"
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return nil, "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, "does not begin with https:// or http://"
	case u.User != nil:
		return nil, "has a user name or a password; use the header Authorization"
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return nil, "has a query or a fragment"
	}
	if _, err := portOf(u); err != nil {
		return nil, "has an invalid port"
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return nil, "has a segment . or .."
		}
	}
	u.Host = strings.ToLower(u.Host)
	return u, ""
}

// portOf returns the port of u, or that of its scheme.
func portOf(u *url.URL) (string, error) {
	port := u.Port()
	switch {
	case port != "":
		n, err := strconv.ParseUint(port, 10, 16)
		if err == nil && n == 0 {
			err = errors.New("port 0")
		}
		return strconv.FormatUint(n, 10), err
	case u.Scheme == "http":
		return "80", nil
	}
	return "443", nil
}

// An origin is a server, or a pattern of servers, that destinations may name.
type origin struct {
	scheme, host, port string // host may be * or begin with *.
	text               string
}

func parseOrigin(text string) (origin, error) {
	u, illegal := parseURL(text)
	if illegal == "" && u.Path != "" && u.Path != "/" {
		illegal = "has a path"
	}
	if illegal == "" {
		host := u.Hostname()
		if rest := strings.TrimPrefix(host, "*."); host != "*" && strings.Contains(rest, "*") {
			illegal = "has a * that is not the first label"
		}
	}
	if illegal != "" {
		return origin{}, fmt.Errorf("sink: Origins: %q %s", text, illegal)
	}
	port, err := portOf(u)
	return origin{scheme: u.Scheme, host: u.Hostname(), port: port, text: u.Scheme + "://" + u.Host}, err
}

func (o origin) isPattern() bool { return strings.HasPrefix(o.host, "*") }

func (o origin) matches(u *url.URL) bool {
	port, err := portOf(u)
	if err != nil || u.Scheme != o.scheme || port != o.port {
		return false
	}
	host := u.Hostname()
	if suffix, ok := strings.CutPrefix(o.host, "*"); ok {
		return len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	}
	return host == o.host
}

// url returns the URL of the server. It must not be a pattern.
func (o origin) url() *url.URL {
	u, _ := parseURL(o.text)
	u.Path = "/"
	return u
}

func isControl(r rune) bool { return r < ' ' || 0x7f <= r && r <= 0x9f }
