package checkpoint

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidSnapshot(t *testing.T) {
	var running []string
	for id := range 3000 {
		running = append(running, strconv.FormatUint(1<<63+uint64(id), 10))
	}
	many := "9223372036854775808:18446744073709551615:" + strings.Join(running, ",")
	for text, want := range map[string]bool{
		"740:740:": true, "740:745:741": true, "740:745:740,741,744": true, many: true,
		"1:18446744073709551615:18446744073709551614": true,

		"": false, ":": false, "::": false, "740": false, "740:745": false, "740:745:741:": false,
		"0:745:741": false, "745:740:": false, "740:745:739": false, "740:745:745": false, "740:745:742,741": false,
		"740:745:741,741": false, "740:745:741,": false, "740:745:,741": false, "740:745: 741": false, "+740:745:": false,
		"0740:745:": false, "740:18446744073709551616:": false, "740:745:741') OR true --": false, "'||'": false,
		"740:745:741\n": false, "740:745:741\x00": false, "७:८:": false,
		"1:2000000:" + strings.Repeat("9", MaxSnapshot):     false,
		many + strings.Repeat(",9223372036854785808", 1000): false,
	} {
		if got := ValidSnapshot(text); got != want {
			t.Errorf("ValidSnapshot(%.60q) = %t", text, got)
		}
	}
}

// A position record of an earlier version may contain a forged snapshot. The rest of the record is valid.
func TestPositionLeavesOutForgedSnapshots(t *testing.T) {
	p := recorded()
	valid := p.Snapshots[1]
	p.Snapshots[0].Text = "1:1:1') OR pg_sleep(9) IS NOT NULL --"
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back Position
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	want := recorded()
	want.Snapshots = []Snapshot{valid}
	if diff := cmp.Diff(want, back); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

func FuzzValidSnapshot(f *testing.F) {
	f.Add("740:745:741,742")
	f.Add("1:1:")
	f.Fuzz(func(t *testing.T, text string) {
		if ValidSnapshot(text) && strings.Trim(text, "0123456789:,") != "" {
			t.Errorf("%q", text)
		}
	})
}
