// Package parking holds the set of parked keys of a relay, and the records that store it.
//
// A key is parked from its first bad record on: that record and every later one of the key go to the dead-letter
// topic, in order, until an operator releases the key. A key belongs to its topic; the same key in two topics is
// two keys.
//
// The set is stored in the position topic, in a record that only the owner of the position store writes. A request of an
// operator is another record there. None of these records has headers, so a row can never forge one: see docs/threat-model.md.
package parking
