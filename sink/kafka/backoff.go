package kafka

import (
	"math/rand/v2"
	"time"
)

const (
	backoffBase = 50 * time.Millisecond

	// backoffMax bounds the wait for what heals by itself: it is how late a recovery may be
	// noticed. It is also what the Java client waits at most (KIP-580).
	backoffMax = time.Second

	// backoffRefused bounds the wait for what a person has to heal.
	backoffRefused = 10 * time.Second
)

// backoff returns how long to wait after the given failed attempt (0 is the first): luck, in
// [0, 1), of min(1 s, 50 ms·2ⁿ). One draw of luck serves all that failed together, so that
// they come back together, in one metadata request and one produce request.
func backoff(attempt int, luck float64) time.Duration {
	ceiling := min(backoffMax, backoffBase<<min(attempt, 8))
	return time.Duration(luck * float64(ceiling))
}

func luck() float64 { return rand.Float64() }
