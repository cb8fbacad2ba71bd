package jetstream

import "testing"

// A token of a key has the bytes that NATS allows, and its name can be found again. Other tokens have no name.
func TestKeyToken(t *testing.T) {
	t.Parallel()
	for name, token := range map[string]string{
		"orders-1_A": "orders-1_A", "a.b": "a=2Eb", "=41": "=3D41", "é %/": "=C3=A9=20=25=2F", "\xff*>": "=FF=2A=3E", "": "",
	} {
		if got := keyToken(name); got != token {
			t.Errorf("keyToken(%q) = %q, want %q", name, got, token)
		}
		if got, ok := nameOf(token); !ok || got != name {
			t.Errorf("nameOf(%q) = %q, %t, want %q", token, got, ok, name)
		}
	}
	for _, token := range []string{"=", "=4", "=zz", "=41", "=2e", "a%2Eb"} {
		if name, ok := nameOf(token); ok {
			t.Errorf("nameOf(%q) = %q", token, name)
		}
	}
}
