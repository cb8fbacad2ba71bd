package kafka

// A list is a queue of partitions, first in, first out. An entry may have been overtaken by
// events: whoever pops it looks at the partition before using it.
type list struct {
	items []*partition
	head  int
}

func (l *list) empty() bool { return l.head == len(l.items) }

func (l *list) push(part *partition) {
	if l.head > 32 && l.head*2 >= len(l.items) {
		n := copy(l.items, l.items[l.head:])
		clear(l.items[n:])
		l.items, l.head = l.items[:n], 0
	}
	l.items = append(l.items, part)
}

func (l *list) front() *partition { return l.items[l.head] }

func (l *list) pop() {
	l.items[l.head] = nil
	l.head++
	if l.empty() {
		l.items, l.head = l.items[:0], 0
	}
}
