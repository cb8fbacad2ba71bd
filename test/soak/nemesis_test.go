package soak

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Equal seeds break the same things, and everything that may be drawn is drawn.
func TestNemesis(t *testing.T) {
	weights := WithSlotLosses(TakeoverWeights())
	weights[BrokerKill] = 0
	a, b := NewNemesis(7, weights), NewNemesis(7, weights)
	drawn := map[Attack]int{}
	pairs := 0
	for range 5000 {
		s, other := a.Next(), b.Next()
		if diff := cmp.Diff(s, other); diff != "" {
			t.Fatal(diff)
		}
		for _, step := range s.Attacks {
			drawn[step.Attack]++
		}
		if len(s.Attacks) == 2 {
			pairs++
			if first, second := s.Attacks[0].Attack, s.Attacks[1].Attack; first.Target() == second.Target() {
				t.Errorf("%s and %s are drawn together", first, second)
			}
		}
	}
	for attack, weight := range weights {
		if (drawn[attack] > 0) != (weight > 0) {
			t.Errorf("%s, of weight %d, was drawn %d times", attack, weight, drawn[attack])
		}
	}
	if pairs == 0 {
		t.Error("no pair was drawn")
	}
	if diff := cmp.Diff(a.Next(), NewNemesis(8, weights).Next()); diff == "" {
		t.Error("another seed drew the same")
	}
}
