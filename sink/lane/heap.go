package lane

// A laneHeap is the lanes that wait for their retryAt: a binary heap, in which each lane knows its index.
type laneHeap struct{ lanes []*lane }

// first returns the lane that is due first, or nil.
func (h *laneHeap) first() *lane {
	if len(h.lanes) == 0 {
		return nil
	}
	return h.lanes[0]
}

func (h *laneHeap) push(l *lane) {
	l.heapIndex = len(h.lanes)
	h.lanes = append(h.lanes, l)
	h.up(l.heapIndex)
}

func (h *laneHeap) remove(l *lane) {
	i, last := l.heapIndex, len(h.lanes)-1
	h.swap(i, last)
	h.lanes[last] = nil
	h.lanes = h.lanes[:last]
	if i < last {
		h.down(i)
		h.up(i)
	}
}

func (h *laneHeap) less(i, j int) bool { return h.lanes[i].retryAt.Before(h.lanes[j].retryAt) }

func (h *laneHeap) swap(i, j int) {
	h.lanes[i], h.lanes[j] = h.lanes[j], h.lanes[i]
	h.lanes[i].heapIndex, h.lanes[j].heapIndex = i, j
}

func (h *laneHeap) up(i int) {
	for parent := (i - 1) / 2; i > 0 && h.less(i, parent); i, parent = parent, (parent-1)/2 {
		h.swap(i, parent)
	}
}

func (h *laneHeap) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.lanes); child++ {
			if h.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
