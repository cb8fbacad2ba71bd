package debezium

import (
	"net/url"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/sink/webhook"
)

// httpAt is the prefix of the keys of the sink http, as in rules.
const httpAt = "server.sink.http."

// httpRules returns the rules for the sink http. It sends every record to one URL.
func httpRules() []rule {
	header := func(key string) rule { return note(httpAt+key, "Part of the verdict on `debezium.sink.type`.") }
	retry := func(key string) rule {
		return note(httpAt+key, "The relay sends a record again without limit, with back-off.")
	}
	return forSink(sinkHTTP,
		rule{
			key: httpAt + "url", ours: "outbox.topic", verdicts: []verdict{same, rejected}, doc: "The same: all records go to this URL.",
			apply: func(m *mapping, e entry) (verdict, string) {
				names, origin, problem := webhookNames(e.value)
				if problem == "" {
					problem = names.Illegal(e.value)
				}
				if problem != "" {
					return rejected, "the URL " + problem
				}
				m.out.Sink.Webhook = &webhookFile{Origins: []string{origin}}
				return same, "outbox.topic: " + e.value
			},
			absent: func(*mapping) (verdict, string) { return rejected, "required" },
		},
		header("headers.prefix"), header("headers.encode.base64"),
		retry("retries"), retry("retry.interval.ms"),
		note(httpAt+"timeout.ms", "The limit of a request is `sink.webhook.timeout`."),
		refuse(httpAt+"authentication.*", "Receivers would get other credentials. The relay has `sink.webhook.token_file`, `user` and `password`, and Standard Webhooks with `signing_secrets_file`: remove these keys, and configure one of them."),
	)
}

// webhookNames returns the server of a URL, and the rules for URLs of it, or why the URL has none.
func webhookNames(address string) (names webhook.Names, origin, problem string) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return names, "", "is not complete: it begins with https:// or http://"
	}
	origin = u.Scheme + "://" + u.Host
	if names, err = (webhook.Config{Origins: []string{origin}}).Names(); err != nil {
		return names, "", "has a server that is not supported: " + origin
	}
	return names, origin, ""
}

// httpNames returns the rules for destinations of the sink http. Without a valid URL, which is rejected anyway, the topic
// stays as it is.
func (m *mapping) httpNames() encode.Names {
	if names, _, problem := webhookNames(m.value(httpAt + "url")); problem == "" && m.out.Sink.Webhook != nil {
		return names
	}
	return kafka.Names{}
}

// convertToAttribute imports the converter of the key or of headers for the sink http. They become attributes of a CloudEvent,
// which are text.
func (m *mapping) convertToAttribute(part string) (verdict, string) {
	if part == "key" {
		m.out.Outbox.Encoding.Key = encString
		return partial, "outbox.encoding.key: string; the key is the header ce-subject, and Debezium Server does not send it"
	}
	m.out.Outbox.Encoding.Headers = encSimple
	return partial, "outbox.encoding.headers: simple, because the attributes of a CloudEvent are text"
}
