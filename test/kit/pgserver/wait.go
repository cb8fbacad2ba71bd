package pgserver

import (
	"context"
	"fmt"
	"time"
)

// waitGone waits until a process that is not our child has ended.
func waitGone(ctx context.Context, pid int) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for alive(pid) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for process %d to end: %w", pid, context.Cause(ctx))
		}
	}
	return nil
}
