package kafka

import (
	"fmt"
	"math"
	"time"
)

// The window is the memory of the records in flight. A broker works for each batch, not for each record, and only a
// larger window makes the batches of many partitions large. So if the window is full, it grows with the number of
// partitions that have records. If it was not full for a while, it shrinks again.
const (
	minWindow          = 4 << 20
	windowPerPartition = 12 << 10
	windowStep         = 1 << 20 // each change of the window costs those who follow it, see WriterConfig.MemoryChanged
	shrinkAfter        = 30 * time.Second

	// partitionMemory is what the producer keeps for a partition without records: metadata, and its last batch, which is used
	// again. Two thirds are memory that these small objects leave unused between them after a drain.
	partitionMemory = 2 << 10

	smallShare = 4 << 10 // if the window has less for each partition, their batches are small
)

// windowBytes returns the size of the window for a number of partitions with records.
func (c Config) windowBytes(partitions int) int {
	wanted := (partitions*windowPerPartition + windowStep - 1) / windowStep * windowStep
	return min(max(minWindow, wanted), c.WindowBytes)
}

// smallBatches returns why the batches are small if a number of partitions have records, and how to fix it. Both are empty
// if the batches are not small.
func (c Config) smallBatches(partitions int) (found, fix string) {
	c = c.withDefaults()
	if partitions*smallShare <= c.WindowBytes {
		return "", ""
	}
	enough := c
	enough.WindowBytes = math.MaxInt
	return fmt.Sprintf("%d partitions share sink.kafka.window.bytes, %d bytes for each, so their batches are small, and Kafka stores fewer records per second", partitions, c.WindowBytes/partitions),
		fmt.Sprintf("set sink.kafka.window.bytes to %d; the relay then needs as much more memory while a backlog is sent", enough.windowBytes(partitions))
}

// adviseWindow returns how to deliver faster if the full window makes the batches small, otherwise "". p.mu is held.
func (p *producer) adviseWindow(now time.Time) string {
	if p.window < p.client.cfg.WindowBytes || now.Sub(p.windowFullAt) > shrinkAfter {
		return ""
	}
	found, fix := p.client.cfg.smallBatches(p.busyPartitions())
	if found == "" {
		return ""
	}
	return "To deliver faster: " + found + "; " + fix + "."
}

// fitsWindow reports whether one more record of this shape fits into the window. Any record fits into an empty
// window. p.mu is held.
func (p *producer) fitsWindow(s *shape) bool {
	if p.inFlightRecords == 0 {
		return true
	}
	if p.inFlightRecords >= p.client.cfg.WindowRecords {
		return false
	}
	n := p.client.pool.inUse() + s.frameSize()
	return n <= p.window || p.growWindow() && n <= p.window
}

// growWindow enlarges the window, which is full, if enough partitions have records. It reports whether it did. p.mu is
// held.
func (p *producer) growWindow() bool {
	p.windowFullAt = time.Now()
	if p.window == p.client.cfg.WindowBytes {
		return false
	}
	wanted := p.client.cfg.windowBytes(p.busyPartitions())
	if wanted <= p.window {
		return false
	}
	p.resizeWindow(wanted)
	signal(p.wakeControl) // which calls shrinkWindow
	return true
}

// busyPartitions returns the number of partitions that have records. p.mu is held.
func (p *producer) busyPartitions() int {
	n := 0
	for _, t := range p.topics {
		if t.unacked == 0 {
			continue
		}
		for _, part := range t.parts {
			if len(part.queue) > 0 {
				n++
			}
		}
	}
	return n
}

// shrinkWindow gives a larger window back that was not full for shrinkAfter. It returns the time until the next call, or
// false if none is needed. p.mu is held.
func (p *producer) shrinkWindow(now time.Time) (wait time.Duration, again bool) {
	smallest := p.client.cfg.windowBytes(0)
	if p.window == smallest {
		return 0, false
	}
	if wait := shrinkAfter - now.Sub(p.windowFullAt); wait > 0 {
		return wait, true
	}
	p.resizeWindow(smallest)
	return 0, false
}

// resizeWindow changes the size of the window, and of what follows it. p.mu is held.
func (p *producer) resizeWindow(bytes int) {
	p.window = bytes
	p.client.pool.setLimit(bytes + bytes/16)
	p.reportMemory()
}

// reportMemory calls MemoryChanged if the window, or what the partitions need without records, has changed. p.mu is held.
func (p *producer) reportMemory() {
	bytes := p.window + p.partitions*partitionMemory/windowStep*windowStep
	if p.cfg.MemoryChanged != nil && bytes != p.reportedMemory {
		p.reportedMemory = bytes
		p.cfg.MemoryChanged(bytes)
	}
}

// partitionsAdded is called when the producer keeps n partitions more. p.mu is held.
func (p *producer) partitionsAdded(n int) {
	p.partitions += n
	p.reportMemory()
}

// releaseWindow removes records from the window. p.mu is held.
func (p *producer) releaseWindow(records, payload int) {
	p.inFlightRecords -= records
	p.inFlightBytes -= payload
}
