package debezium

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOffsets(t *testing.T) {
	file, err := os.ReadFile("testdata/offsets.dat") // written by Java 17
	if err != nil {
		t.Fatal(err)
	}
	const rest = `{"offsets":[{"partition":{"server":"shop"},"offset":{"lsn_proc":26714736,"messageType":"INSERT","lsn_commit":26714360,"lsn":26714736,"txId":748}},` +
		`{"partition":{"server":"billing"},"offset":{"lsn":1,"snapshot":"INITIAL"}},{"partition":{"server":"gone"},"offset":null}]}`
	for name, data := range map[string]string{"REST": rest, "file": string(file)} {
		o, err := ParseOffsets([]byte(data))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := o.Of("shop", "orders-outbox")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := &Offset{server: "shop", lsnCommit: 26714360, lsn: 26714736, lsnProc: 26714736, txID: 748}
		if name == "file" {
			want.connector = "orders-outbox"
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Offset{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if billing, err := o.Of("billing", ""); err != nil || !billing.snapshot || !got.inside() || got.snapshot {
			t.Errorf("%s: %+v, %v", name, billing, err)
		}
		for _, nobody := range []string{"gone", "nobody", ""} {
			if _, err := o.Of(nobody, ""); !errors.Is(err, errOffsets) {
				t.Errorf("%s: offset of %q: %v", name, nobody, err)
			}
		}
	}
	if _, err := mustParse(t, string(file)).Of("shop", "another"); !errors.Is(err, errOffsets) {
		t.Errorf("another connector's offset: %v", err)
	}
	if o, err := mustParse(t, `{"offsets":[]}`).Of("shop", ""); err == nil || !strings.Contains(err.Error(), "not sent anything") {
		t.Errorf("%v, %v", o, err)
	}
}

func mustParse(t *testing.T, text string) *Offsets {
	t.Helper()
	o, err := ParseOffsets([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestNoOffsets(t *testing.T) {
	for _, text := range []string{
		"", "{}", "hunter2", `{"offsets":[{"partition":{},"offset":{"lsn":1}}]}`,
		`{"offsets":[{"partition":{"server":"a"},"offset":{"file":"mysql-bin.1","pos":1}}]}`,
		`{"offsets":[{"partition":{"server":"a"},"offset":{"lsn":"hunter2"}}]}`,
		`{"offsets":[{"partition":{"server":"a"},"offset":{"lsn":-1}}]}`,
		string(javaMagic()),
	} {
		if _, err := ParseOffsets([]byte(text)); !errors.Is(err, errOffsets) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: error = %v", text, err)
		}
	}
}

// ParseOffsets detects every truncation of a file, and every change of its structure.
func TestBrokenOffsets(t *testing.T) {
	file, err := os.ReadFile("testdata/offsets.dat")
	if err != nil {
		t.Fatal(err)
	}
	for n := range file {
		if _, err := ParseOffsets(file[:n]); !errors.Is(err, errOffsets) {
			t.Errorf("of %d bytes: %v", n, err)
		}
	}
	if _, err := ParseOffsets(append(bytes.Clone(file), 0)); !errors.Is(err, errOffsets) {
		t.Errorf("with one byte more: %v", err)
	}
	for _, broken := range [][2]string{{"HashMap", "TreeMap"}, {"[B", "[C"}, {"loadFactor", "\x00loadFacto"}} {
		if _, err := ParseOffsets(bytes.ReplaceAll(file, []byte(broken[0]), []byte(broken[1]))); broken[0] != "loadFactor" && !errors.Is(err, errOffsets) {
			t.Errorf("with %s: %v", broken[1], err)
		}
	}
}

// javaMap serializes a map as Java does.
func javaMap(entries ...javaEntry) []byte {
	out := append(javaMagic(), tcObject, tcClassDesc)
	text := func(s string) { out = append(binary.BigEndian.AppendUint16(out, uint16(len(s))), s...) }
	text("java.util.HashMap")
	out = append(out, 5, 7, 218, 193, 195, 22, 96, 209, 3, 0, 2, 'F')
	text("loadFactor")
	out = append(out, 'I')
	text("threshold")
	out = append(out, tcEndBlockData, tcNull, 0x3f, 0x40, 0, 0, 0, 0, 0, 12, tcBlockData, 8, 0, 0, 0, 16)
	out = binary.BigEndian.AppendUint32(out, uint32(len(entries)))
	described := false
	for _, e := range entries {
		for _, b := range [][]byte{e.key, e.value} {
			if b == nil {
				out = append(out, tcNull)
				continue
			}
			out = append(out, tcArray)
			if described {
				out = append(out, tcReference, 0, 0x7E, 0, 2) // the map's class and the map have the handles 0 and 1
			} else {
				out = append(out, tcClassDesc)
				text("[B")
				out = append(out, 0xac, 0xf3, 0x17, 0xf8, 6, 8, 0x54, 0xe0, 2, 0, 0, tcEndBlockData, tcNull)
				described = true
			}
			out = append(binary.BigEndian.AppendUint32(out, uint32(len(b))), b...)
		}
	}
	return append(out, tcEndBlockData)
}

// parseJavaMap reads the entries that Java writes. No file content causes a panic, or uses more memory than the
// size of the file.
func FuzzOffsets(f *testing.F) {
	file, err := os.ReadFile("testdata/offsets.dat")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file, []byte("k"), []byte("v"))
	f.Add([]byte(`{"offsets":[{"partition":{"server":"a"},"offset":{"lsn":1}}]}`), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, data, key, value []byte) {
		if o, err := ParseOffsets(data); err == nil {
			_, _ = o.Of("a", "b")
		} else if !errors.Is(err, errOffsets) {
			t.Errorf("error = %v", err)
		}
		want := []javaEntry{{key, value}, {value, nil}, {[]byte{}, key}}
		for i := range want { // nil would be written as null
			if want[i].key == nil {
				want[i].key = []byte{}
			}
		}
		got, err := parseJavaMap(javaMap(want...))
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(javaEntry{})); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}
