package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
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

// guard sets what holds for every answer, and refuses hosts' names that are not the server's: a page elsewhere,
// whose name is made to lead here (DNS rebinding), could have a browser read the answers otherwise. Where the server
// listens does not matter: a port of a container is published on a loopback address.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		if host := hostname(r.Host); !s.answersTo(host) {
			http.Error(w, fmt.Sprintf("the relay does not answer to the name %q: use an address or localhost, or add the name to admin.hosts", host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// answersTo reports whether host is an address, localhost, or one of the names that the configuration has.
func (s *Server) answersTo(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(s.cfg.Hosts, func(name string) bool { return strings.EqualFold(host, name) })
}

// hostname returns a request's host without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.Trim(host, "[]"), ".")
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
