package config

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/webhook"
)

const (
	webhookKind = "webhook"
	atWebhook   = "sink.webhook."
)

func webhookBroker() broker {
	return broker{
		kind: webhookKind, title: "Webhook", system: "http",
		names: (*Config).webhookNames,
		check: func(c *Config) error {
			if c.Sink.Webhook.URL == "" && len(c.webhookOrigins()) == 0 {
				return nil // a command that sends nothing does not need it
			}
			_, err := c.Webhook()
			return err
		},
		build: func(c *Config) (sink.Broker, error) {
			cfg, err := c.Webhook()
			if err != nil {
				return nil, err
			}
			return cfg, nil
		},
		warn:      (*Config).webhookWarnings,
		addresses: (*Config).webhookAddresses,
		reloads: []replaced{
			{section: atWebhook + "signing_secrets", paths: []string{atWebhook + "signing_secrets", atWebhook + "signing_secrets_file"}, fixed: true},
			replacedLogin(atWebhook, "password", "token"),
			replacedTLS(atWebhook + "tls."),
		},
	}
}

// Webhook returns the settings of sink.webhook, or an [*Error] that names every missing key.
func (c *Config) Webhook() (webhook.Config, error) {
	w := c.Sink.Webhook
	var missingErr error
	if w.URL == "" && len(c.webhookOrigins()) == 0 {
		missingErr = missing(atWebhook + "url")
	}
	encryption, tlsErr := c.certified(atWebhook + "tls.")
	authorization, loginErr := c.webhookLogin()
	if _, secretsErr := c.signingSecrets(); secretsErr != nil || missingErr != nil || tlsErr != nil || loginErr != nil {
		return webhook.Config{}, join(missingErr, secretsErr, tlsErr, loginErr)
	}
	cfg := webhook.Config{
		URL: w.URL, Origins: c.webhookOrigins(),
		Source: w.Source, Type: w.Type, ContentType: w.ContentType,
		Authorization: authorization, TLS: encryption,
		RefusePrivate: w.RefusePrivateAddresses,
		Timeout:       w.Timeout, ConnectTimeout: w.ConnectTimeout,
		Concurrency: w.Concurrency, MaxPayloadBytes: w.MaxPayloadBytes,
		WindowBytes: w.Window.Bytes, WindowRecords: w.Window.Records,
	}
	if cfg.Source == "" {
		cfg.Source = "/outbox-cdc/" + url.PathEscape(c.name())
	}
	if w.CheckMethod != checkNone {
		cfg.CheckMethod = w.CheckMethod
	}
	if w.Proxy && !w.RefusePrivateAddresses {
		cfg.Proxy = http.ProxyFromEnvironment
	}
	if w.SigningSecrets != "" {
		cfg.Secrets = func() ([]string, error) {
			secrets, err := c.now().signingSecrets()
			return secrets, later(err)
		}
	}
	if err := cfg.Validate(); err != nil {
		return webhook.Config{}, c.invalid("sink.webhook", "%v", err)
	}
	return cfg, nil
}

// signingSecrets returns the signing secrets, which are valid. There are none without the key.
func (c *Config) signingSecrets() ([]string, error) {
	const path = atWebhook + "signing_secrets"
	content, err := c.readSecret(path)
	if err != nil {
		return nil, err
	}
	secrets := strings.Fields(content)
	for _, secret := range secrets {
		if _, err := webhook.ParseSecret(secret); err != nil {
			return nil, c.invalid(path, "%v", err)
		}
	}
	if len(secrets) == 0 && content != "" {
		return nil, c.invalid(path, "there is no signing secret")
	}
	return secrets, nil
}

// webhookLogin returns a function for the header Authorization, nil if there is none. It reads secrets from files again;
// webhookLogin reads them once to validate them.
func (c *Config) webhookLogin() (func(context.Context) (string, error), error) {
	w := c.Sink.Webhook
	var errs []error
	switch {
	case w.Token != "" && w.User != "":
		errs = append(errs, c.invalid(atWebhook+"user", "set together with %stoken; set only one of them", atWebhook))
	case w.User != "" && w.Password == "":
		errs = append(errs, c.invalid(atWebhook+"user", "requires %spassword", atWebhook))
	case w.User == "" && w.Password != "":
		errs = append(errs, c.invalid(atWebhook+"password", "requires %suser", atWebhook))
	}
	current := func() (string, error) {
		if w.User == "" {
			token, err := c.now().readSecret(atWebhook + "token")
			return "Bearer " + strings.TrimSpace(token), err
		}
		password, err := c.now().readSecret(atWebhook + "password")
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(w.User+":"+password)), err
	}
	if w.Token == "" && w.User == "" || len(errs) > 0 {
		return nil, join(errs...)
	}
	if value, err := current(); err != nil {
		return nil, err
	} else if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, c.invalid(atWebhook+"token", "has characters that a header cannot have")
	}
	return func(context.Context) (string, error) {
		value, err := current()
		return value, later(err)
	}, nil
}

// webhookOrigins returns the servers of destinations that are complete URLs: those of the key, and those that the
// configuration names in the fixed part of a destination.
func (c *Config) webhookOrigins() []string {
	origins := slices.Clone(c.Sink.Webhook.Origins)
	for _, template := range []string{c.Outbox.Topic, c.DeadLetterTopic} {
		fixed, _, depends := strings.Cut(template, "$")
		u, err := url.Parse(fixed)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || depends && u.Path == "" {
			continue // not a URL, or a row chooses a part of the host
		}
		if origin := u.Scheme + "://" + u.Host; !slices.Contains(origins, origin) {
			origins = append(origins, origin)
		}
	}
	return origins
}

// webhookNames returns the rules for destinations. Without a valid URL, which another check reports, everything is legal.
func (c *Config) webhookNames() encode.Names {
	names, err := webhook.Config{URL: c.Sink.Webhook.URL, Origins: c.webhookOrigins()}.Names()
	if err != nil {
		return anyName{}
	}
	return names
}

// anyName allows every name.
type anyName struct{}

// Illegal returns "".
func (anyName) Illegal(string) string { return "" }

func (c *Config) webhookAddresses() []string {
	if c.Sink.Webhook.URL == "" {
		return c.webhookOrigins()
	}
	return append([]string{c.Sink.Webhook.URL}, c.webhookOrigins()...)
}

func (c *Config) webhookWarnings() []string {
	var out []string
	w := c.Sink.Webhook
	for _, address := range c.webhookAddresses() {
		if u, err := url.Parse(address); err == nil && u.Scheme == "http" && !isThisMachine(u.Hostname()) {
			out = append(out, fmt.Sprintf("events for %s are not encrypted on the network; use https://", address))
		}
	}
	if w.TLS.InsecureSkipVerify {
		out = append(out, "the certificates of the receivers are not verified")
	}
	if w.SigningSecrets == "" {
		out = append(out, "requests are not signed: receivers cannot tell that they are from the relay; set sink.webhook.signing_secrets_file")
	}
	if slices.ContainsFunc(w.Origins, func(o string) bool { return strings.Contains(o, "*") }) && !w.RefusePrivateAddresses {
		out = append(out, "rows may choose servers, also in your own network; set sink.webhook.refuse_private_addresses: true")
	}
	return out
}
