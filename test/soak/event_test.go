package soak

import "testing"

// FuzzParsePayload looks for a value that is taken for an event it is not.
func FuzzParsePayload(f *testing.F) {
	f.Add(scriptEvent("a", 1).Payload(0))
	f.Add(scriptEvent("b", 2).Payload(300))
	f.Add([]byte(`"||||||"`))
	f.Fuzz(func(t *testing.T, value []byte) {
		e, err := ParsePayload(value)
		if err != nil {
			return
		}
		found, ok := FindEvent(value, e.Run)
		if !ok || found != e {
			t.Errorf("%q is %+v; in a message it is %+v", value, e, found)
		}
	})
}
