package webhook

import (
	"net/netip"
	"strings"
	"testing"
)

func TestDestinations(t *testing.T) {
	base := Config{URL: "https://Hooks.example.com/in/"}
	origins := Config{Origins: []string{"https://hooks.example.com", "http://localhost:8080", "https://*.customer.example"}}
	anyone := Config{URL: "https://hooks.example.com", Origins: []string{"https://*"}}
	for _, tt := range []struct {
		cfg     Config
		name    string
		want    string // URL; empty: illegal
		trusted bool
	}{
		{base, "orders", "https://hooks.example.com/in/orders", true},
		{base, "orders/created", "https://hooks.example.com/in/orders/created", true},
		{base, "a b?c=d#e%2f..", "https://hooks.example.com/in/a%20b%3Fc=d%23e%252f..", true},
		{base, "käse", "https://hooks.example.com/in/k%C3%A4se", true},
		{base, `..\..\admin`, `https://hooks.example.com/in/..%5C..%5Cadmin`, true},
		{base, "@evil.example", "https://hooks.example.com/in/@evil.example", true},
		{base, "", "", false},
		{base, "/orders", "", false},
		{base, "//evil.example/x", "", false},
		{base, "orders/", "", false},
		{base, "..", "", false},
		{base, "orders/../admin", "", false},
		{base, "https://hooks.example.com/in/orders", "", false},
		{base, "a\r\nHost: evil", "", false},
		{base, "a\xff", "", false},
		{base, strings.Repeat("a", maxDestination+1), "", false},

		{origins, "https://hooks.example.com/orders", "https://hooks.example.com/orders", true},
		{origins, "https://HOOKS.example.com:443/orders", "https://hooks.example.com:443/orders", true},
		{origins, "https://hooks.example.com", "https://hooks.example.com", true},
		{origins, "http://localhost:8080/a%20b", "http://localhost:8080/a%20b", true},
		{origins, "https://a.customer.example/hook", "https://a.customer.example/hook", false},
		{origins, "http://hooks.example.com/orders", "", false},
		{origins, "https://hooks.example.com:8443/orders", "", false},
		{origins, "https://hooks.example.com.evil.example/", "", false},
		{origins, "https://hooks.example.com@evil.example/", "", false},
		{origins, "https://user:pw@hooks.example.com/", "", false},
		{origins, "https://customer.example/", "", false},
		{origins, "https://evilcustomer.example/", "", false},
		{origins, "https://hooks.example.com/a?b=c", "", false},
		{origins, "https://hooks.example.com/a#b", "", false},
		{origins, "https://hooks.example.com/a/../b", "", false},
		{origins, "https://hooks.example.com/a/%2e%2e/b", "", false},
		{origins, "https://hooks.example.com/a/..%2fb", "", false},
		{origins, `https://hooks.example.com\@evil.example/`, "", false},
		{origins, "https://hooks.example.com/a b", "", false},
		{origins, "ftp://hooks.example.com/a", "", false},
		{origins, "https:///a", "", false},
		{origins, "orders", "", false},

		{anyone, "https://evil.example/x", "https://evil.example/x", false},
		{anyone, "https://hooks.example.com/x", "https://hooks.example.com/x", true},
		{anyone, "https://hooks.example.com:8443/x", "", false},
		{anyone, "http://hooks.example.com/x", "", false},
		{anyone, "x", "https://hooks.example.com/x", true},
	} {
		names, err := tt.cfg.Names()
		if err != nil {
			t.Fatal(err)
		}
		at, illegal := names.addresses.find(tt.name)
		switch {
		case (illegal == "") != (tt.want != ""):
			t.Errorf("%q: %v, illegal: %q, want %q", tt.name, at, illegal, tt.want)
		case at != nil && (at.url.String() != tt.want || at.trusted != tt.trusted):
			t.Errorf("%q: %s, trusted: %v, want %s", tt.name, at.url, at.trusted, tt.want)
		case len(tt.name) > 2 && illegal != "" && strings.Contains(illegal, tt.name):
			t.Errorf("%q is in %q", tt.name, illegal)
		}
		if names.Illegal(tt.name) != illegal {
			t.Errorf("%q: %q", tt.name, names.Illegal(tt.name))
		}
	}
}

func TestConfigIsValidated(t *testing.T) {
	if err := (Config{URL: "https://hooks.example.com/in"}).Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []Config{
		{},
		{URL: "hooks.example.com"},
		{URL: "https://hooks.example.com?code=1"},
		{URL: "https://u:p@hooks.example.com"},
		{URL: "https://hooks.example.com:0"},
		{Origins: []string{"https://hooks.example.com/in"}},
		{Origins: []string{"https://hooks.*.com"}},
		{Origins: []string{"hooks.example.com"}},
		{URL: "https://a", ContentType: "application/cloudevents+json"},
		{URL: "https://a", ContentType: "json"},
		{URL: "https://a", Type: "a\nb"},
		{URL: "https://a", Source: "%zz"},
		{URL: "https://a", CheckMethod: "GET"},
		{URL: "https://a", Timeout: -1},
		{URL: "https://a", Concurrency: -1},
		{URL: "https://a", WindowBytes: -1},
	} {
		if err := c.Validate(); err == nil {
			t.Errorf("%+v is valid", c)
		}
	}
}

func TestPublicAddresses(t *testing.T) {
	for _, public := range []string{"1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "172.32.0.1", "100.128.0.1"} {
		if !isPublic(netip.MustParseAddr(public)) {
			t.Errorf("%s is refused", public)
		}
	}
	for _, private := range []string{
		"127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
		"fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "100.64.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.19.0.1", "198.51.100.1",
		"203.0.113.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1",
		"64:ff9b:1::1", "2002:7f00:1::", "2001::1", "2001:db8::1", "3fff::1", "100::1", "fec0::1", "192.88.99.1",
	} {
		if isPublic(netip.MustParseAddr(private)) {
			t.Errorf("%s is allowed", private)
		}
	}
	if refusePrivate("tcp", "127.0.0.1:80", nil) == nil || refusePrivate("tcp", "[::1]:80", nil) == nil || refusePrivate("tcp", "name:80", nil) == nil {
		t.Error("a connection is allowed")
	}
	if err := refusePrivate("tcp", "1.1.1.1:443", nil); err != nil {
		t.Error(err)
	}
}
