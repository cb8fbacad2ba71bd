package connect

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
)

var (
	errText     = errors.New("a document that Debezium passes on as text")
	errMixed    = errors.New("a document with members of one name and several types: Debezium cannot write it")
	errLossy    = errors.New("a document with an array whose nested objects differ: Debezium loses members")
	errBig      = errors.New("a document with a number that int64 or double cannot hold: Debezium cannot write it")
	errTopArray = errors.New("a document that is an array: Debezium cannot write it")
	errNoSchema = errors.New("a document that is an empty array: Debezium writes it without a schema")
	errMissing  = errors.New("a document with a null among objects that differ: Debezium cannot write it")
	errRenamed  = errors.New("a document with member names that change: Debezium loses their values")
	errWide     = errors.New("a document with an array of objects that differ too much, so that missing members would outgrow it, or with names that are too long")
	errClash    = errors.New("a document with two members of one name, once the names are adjusted")
)

// A shape is the Connect schema that the router infers for a value in a document.
type shape struct {
	kind     shapeKind
	name     string // of an object: the path to it
	required bool   // of an object among others that differ
	fields   []shapeField
	items    *shape // of an array
}

type shapeKind uint8

const (
	textShape shapeKind = iota
	boolShape
	int32Shape
	int64Shape
	doubleShape
	nullShape  // a null that is kept: optional bytes
	emptyShape // an empty array that is kept: an array of text
	arrayShape
	objectShape
	mixedShape // several; there is no such schema
)

type shapeField struct {
	name  string
	shape *shape
}

// An inference is the state while the shape of a document is inferred. Where Debezium would fail or
// lose data, it continues with a shape that keeps everything and records the flaw.
type inference struct {
	nulls, emptyArrays bool
	flaw               error // the first thing that Debezium does not do
	work               int   // bytes of names and keys made, and members joined
	unfit              bool  // no schema describes the document
}

// maxWork bounds the work of an inference, and with it the length of all names: paths grow with the depth,
// and objects that differ are compared with all before them.
const maxWork = 256 << 20

// joinWork is the work of joining a member, in units of writing one byte.
const joinWork = 32

// exhausted reports whether the work has exceeded its limit. Shapes that are inferred after that are
// incomplete.
func (inf *inference) exhausted() bool { return inf.work > maxWork }

func (inf *inference) found(flaw error) {
	if inf.flaw == nil {
		inf.flaw = flaw
	}
}

func (inf *inference) mixed(flaw error) *shape {
	inf.found(flaw)
	inf.unfit = true
	return &shape{kind: mixedShape}
}

// infer returns the shape of n, nil if the value is omitted. The only error is errText. Objects are
// named by their path; it restarts below an array of arrays.
func (inf *inference) infer(n *node, path string) (*shape, error) {
	switch n.kind {
	case nullNode:
		if inf.nulls {
			return &shape{kind: nullShape}, nil
		}
	case boolNode:
		return &shape{kind: boolShape}, nil
	case stringNode:
		return &shape{kind: textShape}, nil
	case numberNode:
		return inf.number(n), nil
	case arrayNode:
		if len(n.elems) > 0 {
			items, err := inf.array(n, path)
			return &shape{kind: arrayShape, items: items}, err
		}
		if inf.emptyArrays {
			return &shape{kind: emptyShape}, nil
		}
	case objectNode:
		return inf.object(n, path)
	}
	return nil, nil //nolint:nilnil // what is left out has no shape
}

func (inf *inference) number(n *node) *shape {
	switch v, whole, ok := n.integer(); {
	case ok && v >= math.MinInt32 && v <= math.MaxInt32:
		return &shape{kind: int32Shape}
	case ok:
		return &shape{kind: int64Shape}
	case whole:
		inf.found(errBig)
		inf.unfit = true
	case math.IsInf(n.float(), 0):
		inf.found(errBig)
	}
	return &shape{kind: doubleShape}
}

func (inf *inference) object(n *node, path string) (*shape, error) {
	s := &shape{kind: objectShape, name: path}
	for i := range n.members {
		m := &n.members[i]
		below := m.name
		if path != "" {
			below = path + "." + m.name
		}
		if inf.work += len(below); inf.exhausted() {
			return nil, errText
		}
		field, err := inf.infer(&m.value, below)
		switch {
		case err != nil:
			return nil, err
		case field == nil:
			continue
		case m.name == "":
			return nil, errText
		}
		s.fields = append(s.fields, shapeField{m.name, field})
	}
	return s, nil
}

// array returns the shape of an array. Its elements must all have the shape of the first one that is
// not null; the shape of objects has the members of all of them.
func (inf *inference) array(n *node, path string) (*shape, error) {
	first := slices.IndexFunc(n.elems, func(e node) bool { return e.kind != nullNode })
	if first < 0 {
		if inf.nulls {
			return &shape{kind: nullShape}, nil
		}
		return nil, errText
	}
	sample := &n.elems[first]
	for i := range n.elems {
		if kind := n.elems[i].kind; kind != nullNode && kind != sample.kind {
			return nil, errText
		}
	}
	switch sample.kind {
	case objectNode:
		return inf.objects(n, path)
	case arrayNode:
		return inf.arrays(n, sample)
	case numberNode:
		return inf.numbers(n, sample)
	case nullNode, boolNode, stringNode:
	}
	return inf.infer(sample, "")
}

func (inf *inference) numbers(n, sample *node) (*shape, error) {
	s := inf.number(sample)
	for i := range n.elems {
		if e := &n.elems[i]; e.kind == numberNode && inf.number(e).kind != s.kind {
			return nil, errText
		}
	}
	return s, nil
}

// arrays returns the shape of arrays in an array. Debezium considers only the first.
func (inf *inference) arrays(n, sample *node) (*shape, error) {
	s, err := inf.infer(sample, "")
	if err != nil || s == nil {
		return nil, errText
	}
	for i := range n.elems {
		e := &n.elems[i]
		if e == sample || !slices.ContainsFunc(e.elems, func(e node) bool { return e.kind != nullNode }) {
			continue
		}
		if other, err := inf.infer(e, ""); err == nil && other != nil {
			s = inf.merge(s, other)
		} else {
			s = inf.mixed(errMixed)
		}
	}
	return s, nil
}

// objects returns the shape of the objects in an array: the members of all. Debezium collects the
// elements' schemas in a HashSet, whose order differs from process to process, and orders the members
// by it. Here the members of the element with the most come first, then those of the other elements
// in the document's order.
func (inf *inference) objects(n *node, path string) (*shape, error) {
	var all []*shape
	seen := map[string]bool{}
	missing := false
	for i := range n.elems {
		if n.elems[i].kind == nullNode {
			missing = true
			continue
		}
		s, err := inf.infer(&n.elems[i], path)
		if err != nil {
			return nil, err
		}
		key := string(s.appendKey(nil))
		if inf.work += len(key); inf.exhausted() {
			return nil, errText
		}
		if !seen[key] {
			seen[key] = true
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b *shape) int { return cmp.Compare(len(b.fields), len(a.fields)) })
	s := inf.join(all...)
	if s.required = len(all) > 1; s.required && missing {
		inf.found(errMissing)
		s.required = false
	}
	return s, nil
}

// join returns an object's shape with the fields of all the given ones.
func (inf *inference) join(all ...*shape) *shape {
	if len(all) == 1 {
		return all[0]
	}
	s := &shape{kind: objectShape, name: all[0].name}
	places := map[string]int{}
	for _, other := range all {
		if inf.work += joinWork * len(other.fields); inf.exhausted() {
			break
		}
		for _, f := range other.fields {
			if i, ok := places[f.name]; ok {
				s.fields[i].shape = inf.merge(s.fields[i].shape, f.shape)
				continue
			}
			places[f.name] = len(s.fields)
			s.fields = append(s.fields, f)
		}
	}
	return s
}

// merge returns a shape for values that have the shape a or b.
func (inf *inference) merge(a, b *shape) *shape {
	if inf.exhausted() {
		return a
	}
	switch {
	case inf.equal(a, b) || b.kind == nullShape:
		return a
	case a.kind == nullShape:
		return b
	case a.kind == objectShape && b.kind == objectShape:
		inf.found(errLossy)
		return inf.join(a, b)
	case a.kind == arrayShape && b.kind == arrayShape:
		if a.items.kind == objectShape && b.items.kind == objectShape {
			inf.found(errLossy)
		}
		return &shape{kind: arrayShape, items: inf.merge(a.items, b.items)}
	case a.kind == arrayShape && b.kind == emptyShape:
		inf.found(errMixed)
		return a
	case a.kind == emptyShape && b.kind == arrayShape:
		inf.found(errMixed)
		return b
	}
	return inf.mixed(errMixed)
}

func (inf *inference) equal(a, b *shape) bool {
	if a == b {
		return true
	}
	keyA, keyB := a.appendKey(nil), b.appendKey(nil)
	inf.work += len(keyA) + len(keyB)
	return bytes.Equal(keyA, keyB)
}

// appendKey appends a key that identifies the shape among those with its path.
func (s *shape) appendKey(dst []byte) []byte {
	dst = append(dst, 'a'+byte(s.kind))
	if s.required {
		dst = append(dst, '!')
	}
	for _, f := range s.fields {
		dst = strconv.AppendQuote(dst, f.name)
		dst = f.shape.appendKey(dst)
	}
	if s.items != nil {
		dst = s.items.appendKey(dst)
	}
	return append(dst, '.')
}

// schema returns the shape as a schema.
func (s *shape) schema() schema {
	out := schema{optional: !s.required, name: s.name}
	switch s.kind {
	case textShape:
		out.kind = "string"
	case boolShape:
		out.kind = "boolean"
	case int32Shape:
		out.kind = "int32"
	case int64Shape:
		out.kind = "int64"
	case doubleShape:
		out.kind = "double"
	case nullShape, mixedShape:
		out.kind = "bytes"
	case emptyShape:
		out.kind, out.items = "array", &schema{kind: "string", optional: true}
	case arrayShape:
		items := s.items.schema()
		out.kind, out.items = "array", &items
	case objectShape:
		out.kind = "struct"
		for _, f := range s.fields {
			out.fields = append(out.fields, field{f.name, f.shape.schema()})
		}
	}
	return out
}
