package decoder

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// FuzzDecode decodes any bytes, inside or outside of a transaction. A message that may define a relation precedes
// them.
func FuzzDecode(f *testing.F) {
	for _, file := range glob(f, "testdata/corpus/*.hex") {
		seedFromCorpus(f, file)
	}
	f.Fuzz(func(t *testing.T, relation, data []byte, open bool) {
		d := New()
		if open {
			decodeAny(t, d, encode(&Begin{CommitLSN: 0x100}))
		}
		decodeAny(t, d, relation)
		decodeAny(t, d, data)
	})
}

// seedFromCorpus adds every recorded message, each with the Relation that precedes it.
func seedFromCorpus(f *testing.F, file string) {
	f.Helper()
	var relation []byte
	open := false
	for _, m := range loadCorpus(f, file) {
		f.Add(relation, m.data, open)
		switch m.data[0] {
		case typeRelation:
			relation = m.data
		case typeBegin:
			open = true
		case typeCommit:
			open = false
		}
	}
}

// decodeAny checks what must hold for any bytes.
func decodeAny(t *testing.T, d *Decoder, data []byte) {
	t.Helper()
	before := d.capacity()
	out, err := d.Decode(0x10, data)
	if n := d.capacity() - before; n > len(data)+4*d.largestRelation() {
		t.Fatalf("allocated %d values for %d bytes", n, len(data))
	}
	var malformed *Error
	switch {
	case err == nil:
		if again := encode(out); !bytes.Equal(again, data) {
			t.Fatalf("decoded as %s\nand encoded again as %x, want\n%x", printOutput(out), again, data)
		}
	case !errors.As(err, &malformed):
		t.Fatalf("error of type %T: %v", err, err)
	case malformed.Offset < 0 || malformed.Offset > len(data) || malformed.Reason == "" || malformed.LSN != 0x10:
		t.Fatalf("error %+v for %d bytes", malformed, len(data))
	}
}

// capacity returns how many values and relations the Decoder has memory for.
func (d *Decoder) capacity() int { return cap(d.newRow) + cap(d.oldRow) + cap(d.truncated) }

func (d *Decoder) largestRelation() (n int) {
	for _, known := range d.relations {
		n = max(n, len(known.relation.Columns))
	}
	return n
}

// FuzzRoundTrip encodes a session and decodes it.
func FuzzRoundTrip(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		f.Add(randomBytes(rng, 200))
	}
	f.Fuzz(roundTrip)
}

func TestRoundTrip(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	rounds := 150
	if need.Full() {
		rounds = 5000
	}
	for range rounds {
		roundTrip(t, randomBytes(rng, rng.IntN(1000)))
	}
}

func roundTrip(t *testing.T, choices []byte) {
	t.Helper()
	r := &random{choices: choices}
	d := New()
	for len(r.choices) > 0 {
		want := r.next()
		m := message{data: encode(want)}
		checkPrefixes(t, d, m)
		got, err := d.Decode(m.start, m.data)
		if err != nil {
			t.Fatalf("%s: %v", printOutput(want), err)
		}
		if diff := cmp.Diff(want, got, eitherEmpty[Value](), eitherEmpty[*Relation]()); diff != "" {
			t.Fatalf("%x: -want +got:\n%s", m.data, diff)
		}
	}
}

// eitherEmpty makes nil and empty lists equal, except in a Value, where nil is NULL.
func eitherEmpty[E any]() cmp.Option {
	return cmp.FilterValues(func(a, b []E) bool { return len(a)+len(b) == 0 }, cmp.Ignore())
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.UintN(256))
	}
	return b
}
