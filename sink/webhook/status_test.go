package webhook

import (
	"net/http"
	"testing"
	"time"
)

func TestStatusTable(t *testing.T) {
	want := map[class][]int{
		accepted:  {200, 201, 202, 204, 299},
		retriable: {408, 409, 421, 425, 429, 500, 501, 502, 503, 504, 507, 599},
		missing:   {300, 301, 302, 303, 304, 307, 308, 404, 405, 410, 426, 101, 0, 600, 999},
		denied:    {401, 402, 403, 407, 511},
		rejected:  {400, 406, 411, 412, 413, 414, 415, 416, 417, 418, 422, 423, 424, 428, 431, 451, 499},
	}
	tested := make(map[int]bool)
	for class, codes := range want {
		for _, code := range codes {
			tested[code] = true
			if got := lookup(code); got.class != class || got.detail == "" {
				t.Errorf("%d is %+v, want class %d", code, got, class)
			}
		}
	}
	for _, row := range statusTable() {
		if row.code != 0 && !tested[row.code] {
			t.Errorf("%d of the table is not tested", row.code)
		}
	}
	if !isTooLarge(413) || !isTooLarge(431) || isTooLarge(400) {
		t.Error("too large are 413 and 431")
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "120": 2 * time.Minute, "99999999999999999": maxPause, "-1": 0, "1.5": 0, "soon": 0,
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):       0,
		now.Add(24 * time.Hour).Format(http.TimeFormat):   maxPause,
	} {
		if got := pauseAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}

// TestPauses: the pauses that are over are forgotten.
func TestPauses(t *testing.T) {
	var p pauses
	now := time.Now()
	p.set("a", now.Add(time.Second), now)
	if left := p.left("a", now); left != time.Second {
		t.Errorf("left is %s", left)
	}
	if left := p.left("b", now); left > 0 {
		t.Errorf("left of another is %s", left)
	}
	p.set("b", now.Add(time.Minute), now.Add(2*time.Second))
	if len(p.until) != 1 {
		t.Errorf("kept are %v", p.until)
	}
}
