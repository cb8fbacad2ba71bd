package config

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// checkNone is sink.webhook.check_method without a method.
const checkNone = "none"

func (c *Config) webhookKeys() []key {
	return slices.Concat([]key{
		{path: "sink.webhook", doc: "HTTP receivers: the relay sends each record as a POST. See [webhook.md](webhook.md)."},
		{
			path: "sink.webhook.url", at: &c.Sink.Webhook.URL, expands: true,
			pattern: `^https?://[^\s@?#\\]+$`, rule: "a URL that begins with https:// or http://, without user, query and fragment",
			example: "https://hooks.example.com/events",
			doc:     "Base URL: the relay sends the records of a destination, such as `outbox.event.order`, to this path below it. It escapes the path, so a row cannot choose another host.",
		},
		{
			path: "sink.webhook.origins", at: &c.Sink.Webhook.Origins, pattern: `^https?://[^\s@?#/\\]+/?$`, rule: "https://host, https://host:port, https://*.domain or https://*",
			example: "[https://hooks.example.com]",
			doc: "Servers of destinations that are complete URLs. `https://*.example.com` allows any name below that domain, `https://*` any server." +
				" A server that `outbox.topic` or `dead_letter_topic` names in its fixed part, as in `https://hooks.example.com/${route}`, is allowed without this key.",
		},
		{
			path: "sink.webhook.source", at: &c.Sink.Webhook.Source, pattern: `^\S+$`, rule: "a URI reference", example: "https://shop.example.com/orders",
			doc: "Attribute `source` of the CloudEvents. Default: `/outbox-cdc/` and the relay's `name`.",
		},
		{path: "sink.webhook.type", at: &c.Sink.Webhook.Type, def: "outbox.event", pattern: `^[^\x00-\x1f\x7f]+$`, rule: "a text without control characters", doc: "Attribute `type` of the CloudEvents whose row has no event type."},
		{
			path: "sink.webhook.content_type", at: &c.Sink.Webhook.ContentType, def: "application/json", pattern: `^[^\s/]+/[^\s/]`, rule: "a media type",
			doc: "Media type of payloads. A header `content-type` of the row overrides it.",
		},
		{path: "sink.webhook.signing_secrets", at: &c.Sink.Webhook.SigningSecrets, doc: "Signing secrets (Standard Webhooks), separated by spaces or lines, the current one first: `whsec_` and base64 of 24 to 64 bytes. The relay signs with each of them. Default: requests are not signed."},
		{path: "sink.webhook.signing_secrets_file", at: &c.Sink.Webhook.SigningSecretsFile, example: "/run/secrets/webhook-signing", doc: "File with the signing secrets. The relay reads it again once a second."},
		{path: "sink.webhook.token", at: &c.Sink.Webhook.Token, doc: "Bearer token for `Authorization`. Servers that only a pattern of `origins` allows do not get it."},
		{path: "sink.webhook.token_file", at: &c.Sink.Webhook.TokenFile, example: "/run/secrets/webhook-token", doc: "File with the token. The relay reads it again once a second."},
		{path: "sink.webhook.user", at: &c.Sink.Webhook.User, expands: true, pattern: `^[^:\x00-\x1f\x7f]+$`, rule: "a name without colon", doc: "User for `Authorization`, in place of a token."},
		{path: "sink.webhook.password", at: &c.Sink.Webhook.Password, doc: "Password of the user."},
		{path: "sink.webhook.password_file", at: &c.Sink.Webhook.PasswordFile, example: "/run/secrets/webhook-password", doc: "File with the password. The relay reads it again once a second."},
		{
			path: "sink.webhook.refuse_private_addresses", at: &c.Sink.Webhook.RefusePrivateAddresses, def: false,
			doc: "Refuse connections to loopback, private, link-local and other addresses that are not public. The relay tests the address of each connection, after it has resolved the name. It then uses no proxy.",
		},
		{path: "sink.webhook.proxy", at: &c.Sink.Webhook.Proxy, def: true, doc: "Use the proxy of `HTTPS_PROXY` or `HTTP_PROXY`, except for hosts in `NO_PROXY`."},
		{path: "sink.webhook.timeout", at: &c.Sink.Webhook.Timeout, def: 30 * time.Second, doc: "How long the relay waits for a response before it sends the request again."},
		{path: "sink.webhook.connect_timeout", at: &c.Sink.Webhook.ConnectTimeout, def: 10 * time.Second, doc: "How long a connection with its TLS handshake may take."},
		{path: "sink.webhook.concurrency", at: &c.Sink.Webhook.Concurrency, min: 1, max: 10_000, def: 64, doc: "Maximum number of requests to a server at the same time. A key has at most one."},
		{path: "sink.webhook.max_payload_bytes", at: &c.Sink.Webhook.MaxPayloadBytes, min: 1, doc: "Maximum size of a payload; a larger one is a bad record. Default: the receiver decides, with status 413."},
		{
			path: "sink.webhook.check_method", at: &c.Sink.Webhook.CheckMethod, def: checkNone, allowed: []string{checkNone, "HEAD", "OPTIONS"},
			doc: "Method with which `check` tests whether a destination exists: 404 and 410 mean that it does not, 401 and 403 that it denies access. `none`: it does not test it, because many receivers know only POST.",
		},
	}, certificateKeys(atWebhook+"tls.", &c.Sink.Webhook.TLS), windowKeys(atWebhook+"window.", &c.Sink.Webhook.Window, lane.DefaultWindowBytes, lane.DefaultWindowRecords))
}
