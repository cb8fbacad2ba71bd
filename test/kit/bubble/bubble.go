// Package bubble has the functions of time that tests may call: inside a bubble of testing/synctest, where time is virtual and a
// test takes as long as its instructions. Outside, a test that sleeps or compares elapsed time judges the machine; see test/kit/wait.
package bubble

import "time"

// Sleep advances the virtual time by d. It panics outside a bubble.
func Sleep(d time.Duration) {
	check()
	time.Sleep(d)
}

// Since returns the virtual time since t. It panics outside a bubble.
func Since(t time.Time) time.Duration {
	check()
	return time.Since(t)
}

// check panics outside a bubble. The time in a bubble begins at midnight UTC 2000-01-01; see https://pkg.go.dev/testing/synctest.
func check() {
	if time.Now().Year() > 2010 {
		panic("bubble: this is not a bubble of testing/synctest")
	}
}
