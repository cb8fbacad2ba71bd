package awstest

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// A Front stands between a client and a server, and injects faults into the requests that write messages.
type Front struct {
	URL string

	to http.Handler

	mu     sync.Mutex
	strike *Strike
	hit    chan struct{}
	healed chan struct{}
}

// A Strike is what happens to each write. One field is set.
type Strike struct {
	Cut    bool // the connection is lost before the server has the request
	Lose   bool // the connection is lost after the server has handled the request
	Hold   bool // the response is withheld until the strike is healed
	Status int  // the server is not asked, and the response has this status and no code
}

// NewFront starts a Front for the server at a URL, and stops it when the test ends.
func NewFront(tb testing.TB, server string) *Front {
	tb.Helper()
	to, err := url.Parse(server)
	if err != nil {
		tb.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:    &http.Transport{MaxIdleConnsPerHost: 64},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	f := &Front{to: proxy}
	front := httptest.NewServer(f)
	tb.Cleanup(front.Close)
	f.URL = front.URL
	return f
}

// Begin starts a fault. met is closed when it has affected a write. heal ends it.
func (f *Front) Begin(s Strike) (met <-chan struct{}, heal func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	hit, healed := make(chan struct{}), make(chan struct{})
	f.strike, f.hit, f.healed = &s, hit, healed
	return hit, sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.strike = nil
		close(healed)
	})
}

// present returns the fault for a write.
func (f *Front) present() (s *Strike, meet func(), healed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	hit := f.hit
	return f.strike, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		select {
		case <-hit:
		default:
			close(hit)
		}
	}, f.healed
}

// ServeHTTP implements [http.Handler].
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, meet, healed := f.present()
	if s != nil && s.Cut {
		start := make([]byte, 64)
		n, _ := io.ReadFull(r.Body, start)
		if isWrite(r, start[:n]) {
			disconnect(w)
			meet()
			return
		}
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(start[:n]), r.Body))
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if s == nil || !isWrite(r, body) {
		f.to.ServeHTTP(w, r)
		return
	}
	if s.Status > 0 {
		w.WriteHeader(s.Status)
		meet()
		return
	}
	got := httptest.NewRecorder()
	f.to.ServeHTTP(got, r)
	meet()
	if s.Lose {
		disconnect(w)
		return
	}
	select {
	case <-healed:
	case <-r.Context().Done():
	}
	maps.Copy(w.Header(), got.Header())
	w.WriteHeader(got.Code)
	_, _ = w.Write(got.Body.Bytes())
}

func isWrite(r *http.Request, body []byte) bool {
	return strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".SendMessageBatch") || bytes.HasPrefix(body, []byte("Action=PublishBatch&"))
}

// disconnect closes the connection without a response.
func disconnect(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}
