package debezium

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// The converted configuration is valid: it never contains incompatible keys.
func TestEveryResultLoads(t *testing.T) {
	for _, cases := range [][]verdictCase{connectorCases, tableCases(), valueCases(), routerCases(), kafkaCases, sinkCases(), {
		{changes: "publication.autocreate.mode=disabled\nsnapshot.mode=initial\nslot.failover=true"},
		{changes: "slot.failover=true"},
		{changes: "errors.tolerance=all\ntransforms.outbox.route.topic.replacement=$$x"},
	}} {
		for _, tt := range cases {
			variants := []string{tt.changes}
			if need.Full() {
				variants = append(variants, "-snapshot.mode\n"+tt.changes)
			}
			for _, changes := range variants {
				if result := imported(t, changes, tt.server, tt.opts); result.YAML != nil {
					loads(t, changes, result)
				}
			}
		}
	}
}

// loads fails unless the configuration loads.
func loads(t *testing.T, what string, result *Result) {
	t.Helper()
	var environ []string
	for _, name := range result.Variables {
		environ = append(environ, name+"=1")
	}
	cfg, err := config.Load(config.Sources{File: "yaml", Content: result.YAML, Environ: environ})
	if err == nil {
		_, err = cfg.Relay()
	}
	if err != nil && !strings.Contains(err.Error(), "open ") { // certificates exist only on the host of the relay
		t.Errorf("%s: %v\n%s", what, err, result.YAML)
	}
}

// The import rejects a malformed login, or converts it to a configuration that loads.
func TestBrokenLogin(t *testing.T) {
	checkValue(t, "producer.override.sasl.jaas.config", `equired usernasword{file passwor:/a:user}" password="`)
}

// For any value of a key, the import rejects it or returns a configuration that loads.
func FuzzValue(f *testing.F) {
	var keys []string
	for _, g := range mappingTable() {
		for _, r := range g.rules {
			keys = append(keys, aKey(r))
		}
	}
	for i, value := range []string{"", "x", "true", "6", "a:header:b", "${x}", "${file:/x:y}", "(a)(b)?", "$1", `p'"\ w`, "public.Outbox, b.*"} {
		f.Add(uint(17*i), value)
	}
	f.Fuzz(func(t *testing.T, n uint, value string) { checkValue(t, keys[n%uint(len(keys))], value) })
}

// checkValue imports a configuration in which key has value, and loads the result.
func checkValue(t *testing.T, key, value string) {
	t.Helper()
	if strings.ContainsAny(value, "\n\x00") || !utf8.ValidString(value) || strings.HasPrefix(key, "database.ssl") || strings.HasSuffix(key, ".location") {
		return // the last two conditions are about file names
	}
	changes := jsonLine + headerOn + "transforms.h.header=h\ntransforms.h.value.literal=v\n" + renameOn + "transforms.r.regex=a\ntransforms.r.replacement=b\ntransforms=outbox,h,r\n" + key + "=" + value
	if result := imported(t, changes, false, Options{}); result.YAML != nil {
		loads(t, changes, result)
	}
}
