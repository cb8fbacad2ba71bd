package config

import "testing"

// TestPrimaryOfSeveralServers: if the connection string names several servers, the relay connects to the primary, unless
// the user has chosen another one.
func TestPrimaryOfSeveralServers(t *testing.T) {
	for _, tc := range []struct {
		dsn, env string
		checked  bool
	}{
		{"postgres://cdc@a,b/app", "", true},
		{"host=localhost,localhost port=1,2 user=cdc", "", true},
		{"postgres://cdc@localhost/app", "", false}, // twice, with TLS and without
		{"postgres://cdc@a/app", "", false},
		{"postgres://cdc@a,b/app?target_session_attrs=any", "", false},
		{"host=a,b user=cdc target_session_attrs=any", "", false},
		{"postgres://cdc@a,b/app", "any", false},
		{"postgres://cdc@a,b/app?target_session_attrs=standby", "", true},
		{"postgres://cdc@a/app?target_session_attrs=read-write", "", true},
	} {
		t.Setenv("PGTARGETSESSIONATTRS", tc.env)
		cfg, err := Load(Sources{Flags: []Setting{{Key: "source.dsn", Value: tc.dsn, Flag: "--dsn"}}})
		if err != nil {
			t.Fatal(err)
		}
		pg, err := cfg.Postgres()
		if err != nil {
			t.Fatalf("%s: %v", tc.dsn, err)
		}
		if checked := pg.ValidateConnect != nil; checked != tc.checked {
			t.Errorf("%s, %q: the server is checked: %t", tc.dsn, tc.env, checked)
		}
	}
}
