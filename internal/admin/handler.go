package admin

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// handler answers GET and HEAD; net/http's mux refuses every other method.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: 8}))
	mux.HandleFunc("GET /livez", s.serveLive)
	mux.HandleFunc("GET /readyz", s.serveReady)
	mux.HandleFunc("GET /status", s.serveStatus)
	mux.HandleFunc("GET /history", s.serveHistory)
	mux.HandleFunc("GET /config", s.serveConfig)
	mux.HandleFunc("GET /{$}", s.page.serve)
	return s.guard(mux)
}

// guard sets what holds for every answer. On a loopback address it refuses other hosts' names:
// a page elsewhere, whose name is made to lead here, could read the answers otherwise.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		if s.local && !isLocal(r.Host) {
			http.Error(w, "this server answers to localhost and addresses only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocal reports whether a request's host is an address or localhost.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost")
}

func (s *Server) serveLive(w http.ResponseWriter, _ *http.Request) {
	probe(w, s.stuck(time.Now()), "alive")
}

func (s *Server) serveReady(w http.ResponseWriter, _ *http.Request) {
	probe(w, s.unready(time.Now()), "ready")
}

// probe answers what well says, or 503 with the problem.
func probe(w http.ResponseWriter, problem, well string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if problem != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		well = problem
	}
	_, _ = io.WriteString(w, well+"\n")
}

func (s *Server) serveStatus(w http.ResponseWriter, _ *http.Request) {
	st := s.status(time.Now())
	if st == nil {
		probe(w, "starting", "")
		return
	}
	writeJSON(w, st)
}

func (s *Server) serveHistory(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, History{columns(), s.history.last(kept)})
}

func (s *Server) serveConfig(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Configuration == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, s.cfg.Configuration)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // whoever asked has gone
}
