package command

import "testing"

// The documentation is that of the release, or of the commit that was built.
func TestDocsOfAVersion(t *testing.T) {
	for _, tt := range []struct {
		build Build
		of    string
	}{
		{Build{Module: "v1.2.3", Revision: "0123abc"}, "v1.2.3"},
		{Build{Module: "v2.0.0-rc.1"}, "v2.0.0-rc.1"},
		{Build{Module: "v1.2.4-0.20261128050000-0123456789ab", Revision: "0123456789abcdef"}, "0123456789abcdef"},
		{Build{Module: "v1.2.4-0.20261128050000-0123456789ab"}, "main"},
		{Build{Module: "v1.2.3+dirty", Revision: "0123abc", Modified: true}, "0123abc"},
		{Build{Module: "(devel)"}, "main"},
	} {
		if got, want := tt.build.Docs(), "https://github.com/outbox-cdc/outbox-cdc/blob/"+tt.of+"/docs"; got != want {
			t.Errorf("%+v: %s, want %s", tt.build, got, want)
		}
	}
}
