package debezium

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// The converted configuration is valid: incompatible keys are not written
// together.
func TestEveryResultLoads(t *testing.T) {
	for _, cases := range [][]verdictCase{connectorCases, tableCases(), valueCases(), routerCases(), kafkaCases, {
		{changes: "publication.autocreate.mode=disabled\nsnapshot.mode=initial\nslot.failover=true"},
		{changes: "-snapshot.mode\nslot.failover=true"},
		{changes: "errors.tolerance=all\ntransforms.outbox.route.topic.replacement=$$x"},
	}} {
		for _, tt := range cases {
			result := imported(t, tt.changes, tt.server, tt.opts)
			if result.YAML == nil {
				continue
			}
			loads(t, tt.changes, result)
		}
	}
}

// loads demands that a configuration is taken as it is.
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
	if err != nil && !strings.Contains(err.Error(), "open ") { // a certificate is where the relay runs
		t.Errorf("%s: %v\n%s", what, err, result.YAML)
	}
}

// A login whose words run into each other and whose quotes do not close is refused, or its import
// is a configuration that loads.
func TestBrokenLogin(t *testing.T) {
	checkValue(t, "producer.override.sasl.jaas.config", `equired usernasword{file passwor:/a:user}" password="`)
}

// Whatever value a key has, it is refused, or what comes of it is taken as it is.
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

// checkValue imports a configuration in which key has value, and loads what comes of it.
func checkValue(t *testing.T, key, value string) {
	t.Helper()
	if strings.ContainsAny(value, "\n\x00") || !utf8.ValidString(value) || strings.HasPrefix(key, "database.ssl") || strings.HasSuffix(key, ".location") {
		return // the last two name files
	}
	changes := jsonLine + headerOn + "transforms.h.header=h\ntransforms.h.value.literal=v\n" + renameOn + "transforms.r.regex=a\ntransforms.r.replacement=b\ntransforms=outbox,h,r\n" + key + "=" + value
	if result := imported(t, changes, false, Options{}); result.YAML != nil {
		loads(t, changes, result)
	}
}
