package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// certificateWarning is how long before its end a certificate is reported.
const certificateWarning = 14 * 24 * time.Hour

const credentialsAdvice = "correct the token, the password or the signing secrets that the receiver asks for"

// An inspection collects what Inspect finds.
type inspection struct {
	sink.Findings

	client *client
	short  bool // [sink.Use.Short]
}

// Conditions implements [sink.Inspector].
func (Config) Conditions() []sink.Condition {
	return []sink.Condition{
		{Name: "signature", Met: "Requests are signed, and the secrets can be read.", Short: true},
		{Name: "authorization", Met: "The token or password can be read, if one is configured.", Short: true},
		{Name: "receiver", Object: "server", Met: "The server responds to `HEAD`, and does not deny access. The check sends no event.", Short: true},
		{Name: "encryption", Object: "server", Met: "The connection uses TLS, unless the server is this machine, and the certificate is valid for two weeks more.", Short: true},
		{Name: "addresses", Object: "origin", Met: "Rows cannot choose a server in your own network."},
		{Name: "destination", Object: "destination", Met: "The URL is allowed, and the receiver knows it and does not deny access: `sink.webhook.check_method` asks for that, and otherwise it is not tested.", Short: true},
		{Name: "order", Object: "destination", Met: "The last rows have a key."},
	}
}

// Inspect implements [sink.Inspector]. It sends no event: it asks each server that the configuration names without a wildcard
// with HEAD, and each destination with CheckMethod, if it is set.
func (c Config) Inspect(ctx context.Context, use sink.Use) []sink.Finding {
	opened, err := newClient(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return []sink.Finding{{Condition: "receiver", State: sink.Failed, Found: err.Error()}}
	}
	defer opened.poster.close()
	i := &inspection{client: opened, short: use.Short}
	i.credentials(ctx)
	for _, u := range opened.addresses.contacts() {
		i.server(ctx, u)
	}
	i.origins()
	for _, d := range use.Destinations {
		i.destination(ctx, d)
	}
	if use.DeadLetters != "" {
		i.destination(ctx, sink.Destination{Name: use.DeadLetters})
	}
	return i.Findings
}

// credentials tests whether secrets can be read.
func (i *inspection) credentials(ctx context.Context) {
	p := i.client.poster
	switch {
	case p.secrets == nil && i.short: // the operator has decided that
	case p.secrets == nil:
		i.Doubt("signature", "", "requests are not signed, so a receiver cannot tell that they are from the relay", "set sink.webhook.signing_secrets_file, and verify webhook-signature in the receiver")
	default:
		if keys, err := p.secrets.read(ctx); err != nil {
			i.Failed("signature", "", err.Error(), "write secrets of 24 to 64 bytes as base64, with whsec_ before each, one a line")
		} else {
			i.Met("signature", "", fmt.Sprintf("requests are signed, number of secrets: %d", len(keys)))
		}
	}
	if p.authorization == nil {
		return
	}
	if _, err := p.authorization.read(ctx); err != nil {
		i.Failed("authorization", "", err.Error(), "correct the file of the token or password")
	} else {
		i.Met("authorization", "", "the credentials can be read")
	}
}

// server tests whether a server responds.
func (i *inspection) server(ctx context.Context, u *url.URL) {
	name := u.Scheme + "://" + u.Host
	got, err := i.client.poster.sendEmpty(ctx, http.MethodHead, &address{url: u, trusted: true})
	if err != nil {
		fix := reachAdvice
		if sink.TLSReason(err, "receiver") != "" {
			fix = accessAdvice
		}
		i.Failed("receiver", name, explain(err, i.client.cfg.Timeout).Error(), fix)
		return
	}
	found := fmt.Sprintf("responds over %s; to HEAD with %s", got.protocol, statusText(got.code))
	switch {
	case got.code == http.StatusProxyAuthRequired:
		i.Failed("receiver", name, statusText(got.code)+": "+lookup(got.code).detail, "check the credentials in HTTPS_PROXY")
		return
	case lookup(got.code).class != denied:
		i.Met("receiver", name, found+", which says nothing about POST")
	case !i.short: // the relay reports a POST that is denied
		i.Doubt("receiver", name, found+": it may deny POST, too", credentialsAdvice)
	}
	switch {
	case got.tls != nil:
		i.certificate(name, got.tls)
	case !isLoopback(u.Hostname()) && !i.short:
		i.Doubt("encryption", name, "payloads and credentials are not encrypted on the network", "use https://")
	}
}

// certificate tests how long the certificate of a server is valid.
func (i *inspection) certificate(name string, state *tls.ConnectionState) {
	if len(state.PeerCertificates) == 0 {
		return
	}
	end := state.PeerCertificates[0].NotAfter
	found := fmt.Sprintf("%s; the certificate is valid until %s", tls.VersionName(state.Version), end.UTC().Format(time.DateOnly))
	if time.Until(end) < certificateWarning {
		i.Doubt("encryption", name, found, "renew the certificate of the receiver")
		return
	}
	i.Met("encryption", name, found)
}

// origins tests whether rows can choose servers in the own network.
func (i *inspection) origins() {
	cfg := &i.client.cfg
	for _, o := range i.client.addresses.origins {
		if o.isPattern() && !cfg.RefusePrivate {
			i.Doubt("addresses", o.text, "rows may choose the server, and so make the relay send requests into your own network", "set sink.webhook.refuse_private_addresses: true")
			return
		}
	}
}

// destination tests a destination.
func (i *inspection) destination(ctx context.Context, d sink.Destination) {
	at, illegal := i.client.addresses.find(d.Name)
	switch {
	case illegal != "":
		i.Failed("destination", d.Name, illegal, "correct outbox.topic, sink.webhook.url or sink.webhook.origins")
		return
	case d.Keyless > 0:
		i.Doubt("order", d.Name, fmt.Sprintf("%d records have no key, and so no order", d.Keyless), "")
	}
	method := i.client.cfg.CheckMethod
	switch {
	case i.short:
		return
	case method == "":
		i.Met("destination", d.Name, "the URL is allowed; not tested whether the receiver knows it and accepts the credentials, because sink.webhook.check_method is none")
		return
	}
	got, err := i.client.poster.sendEmpty(ctx, method, at)
	switch {
	case err != nil:
		i.Failed("destination", d.Name, explain(err, i.client.cfg.Timeout).Error(), reachAdvice)
	case got.code == http.StatusNotFound || got.code == http.StatusGone:
		i.Failed("destination", d.Name, "responds to "+method+" with "+statusText(got.code), "make the receiver accept POST at this URL, or set sink.webhook.check_method: none if it knows only POST")
	case lookup(got.code).class == denied:
		i.Failed("destination", d.Name, "responds to "+method+" with "+statusText(got.code)+": "+lookup(got.code).detail, credentialsAdvice+", or set sink.webhook.check_method: none if it denies only "+method)
	default:
		i.Met("destination", d.Name, "responds to "+method+" with "+statusText(got.code))
	}
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}
