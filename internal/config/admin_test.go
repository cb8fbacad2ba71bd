package config

import (
	"strings"
	"testing"
)

func TestAdminListen(t *testing.T) {
	cleanEnviron(t)
	for value, warned := range map[string]bool{
		"127.0.0.1:9187": false, "localhost:0": false, "'[::1]:9187'": false, "''": false,
		"':9187'": true, "0.0.0.0:9187": true, "'[::]:9187'": true, "relay.example.com:80": true,
	} {
		cfg, err := load(t, "admin: {listen: "+value+"}", nil)
		if err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		if got := strings.Contains(strings.Join(cfg.Warnings(), "\n"), "the admin server at"); got != warned {
			t.Errorf("%s: warned %v", value, got)
		}
		if cfg.ListensByDefault() {
			t.Errorf("%s is taken for the default", value)
		}
	}
	for _, value := range []string{"9187", "http://localhost:9187", "localhost", "localhost:port", "a b:1"} {
		if _, err := load(t, "admin: {listen: '"+value+"'}", nil); err == nil {
			t.Errorf("%q was accepted", value)
		}
	}
	cfg, err := load(t, "name: orders", nil)
	if err != nil || cfg.Admin.Listen != "127.0.0.1:9187" || !cfg.ListensByDefault() {
		t.Errorf("by default: %+v, %v", cfg, err)
	}
}
