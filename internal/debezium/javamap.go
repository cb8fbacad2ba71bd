package debezium

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Bytes of Java's serialization:
// https://docs.oracle.com/en/java/javase/17/docs/specs/serialization/protocol.html
const (
	tcNull         = 0x70
	tcReference    = 0x71
	tcClassDesc    = 0x72
	tcObject       = 0x73
	tcArray        = 0x75
	tcBlockData    = 0x77
	tcEndBlockData = 0x78

	baseWireHandle = 0x7E0000
)

func javaMagic() []byte { return []byte{0xAC, 0xED, 0x00, 0x05} }

var errJava = errors.New("not a HashMap<byte[], byte[]> of Java")

// A javaEntry is an entry of a map; a nil value is null.
type javaEntry struct{ key, value []byte }

// parseJavaMap parses a serialized java.util.HashMap with byte[] keys and values. It allocates no more memory
// than the length of data, for any data.
func parseJavaMap(data []byte) ([]javaEntry, error) {
	r := javaReader{data: data}
	if string(r.next(len(javaMagic()))) != string(javaMagic()) {
		return nil, errJava
	}
	r.expect(tcObject)
	if class := r.classDesc(); r.err == nil && class != "java.util.HashMap" {
		return nil, fmt.Errorf("%w: it is another class", errJava)
	}
	r.handles = append(r.handles, nil) // the map itself
	r.next(8)                          // loadFactor and threshold
	r.expect(tcBlockData)
	r.expect(8)
	r.next(4) // capacity
	n := r.uint32()
	var out []javaEntry
	for i := uint32(0); i < n && r.err == nil; i++ {
		key := r.bytes()
		out = append(out, javaEntry{key, r.bytes()})
	}
	r.expect(tcEndBlockData)
	if r.err == nil && len(r.data) > 0 {
		r.fail("something follows it")
	}
	if r.err != nil {
		return nil, r.err
	}
	return out, nil
}

// A javaReader parses the part of the grammar that such a map needs. After the first error it returns zeros.
type javaReader struct {
	data    []byte
	handles []any // targets of references: the name of a class, the content of an array, or nil
	err     error
}

func (r *javaReader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", errJava, what)
	}
	r.data = nil
}

func (r *javaReader) next(n int) []byte {
	if n < 0 || n > len(r.data) {
		r.fail("it ends too early")
		return nil
	}
	out := r.data[:n]
	r.data = r.data[n:]
	return out
}

func (r *javaReader) byte() byte {
	if b := r.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *javaReader) uint32() uint32 {
	if b := r.next(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *javaReader) text() string {
	b := r.next(2)
	if b == nil {
		return ""
	}
	return string(r.next(int(binary.BigEndian.Uint16(b))))
}

func (r *javaReader) expect(b byte) {
	if got := r.byte(); r.err == nil && got != b {
		r.fail("it is put together in another way")
	}
}

// classDesc parses the description of a class without superclass, and returns its name.
func (r *javaReader) classDesc() string {
	switch r.byte() {
	case tcReference:
		name, _ := r.reference().(string)
		return name
	case tcClassDesc:
	default:
		r.fail("it is put together in another way")
		return ""
	}
	name := r.text()
	r.next(8) // serialVersionUID
	r.handles = append(r.handles, name)
	r.byte() // flags
	fields := r.next(2)
	if fields == nil {
		return ""
	}
	for range binary.BigEndian.Uint16(fields) {
		if kind := r.byte(); kind == '[' || kind == 'L' || r.err != nil {
			r.fail("it has other fields")
			return ""
		}
		r.text()
	}
	r.expect(tcEndBlockData)
	r.expect(tcNull)
	return name
}

// bytes parses a byte[], or null.
func (r *javaReader) bytes() []byte {
	switch r.byte() {
	case tcNull:
		return nil
	case tcReference:
		content, _ := r.reference().([]byte)
		return content
	case tcArray:
	default:
		r.fail("it holds something other than bytes")
		return nil
	}
	if class := r.classDesc(); r.err == nil && class != "[B" {
		r.fail("it holds something other than bytes")
	}
	at := len(r.handles)
	r.handles = append(r.handles, nil)
	content := r.next(int(r.uint32()))
	r.handles[at] = content
	return content
}

// reference parses a reference and returns its target.
func (r *javaReader) reference() any {
	i := int64(r.uint32()) - baseWireHandle
	if i < 0 || i >= int64(len(r.handles)) || r.handles[i] == nil {
		r.fail("it refers to something that is not there")
		return nil
	}
	return r.handles[i]
}
