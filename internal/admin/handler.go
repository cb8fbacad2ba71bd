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

// handler returns the handler of all paths. net/http's mux allows only GET and HEAD.
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

// guard sets the headers of every response, and rejects requests under an unknown host name. Otherwise a web page whose
// name resolves to this address (DNS rebinding) could read responses through a browser. This applies to loopback
// addresses too, because ports of containers are published there.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		if host := hostname(r.Host); !s.answersTo(host) {
			http.Error(w, fmt.Sprintf("the relay does not respond under the name %q: use an IP address or localhost, or add the name to admin.hosts", host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// answersTo reports whether host is an IP address, localhost, or a configured name.
func (s *Server) answersTo(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(s.cfg.Hosts, func(name string) bool { return strings.EqualFold(host, name) })
}

// hostname returns the host of a request without the port.
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
	role, problem := s.readiness(time.Now())
	probe(w, problem, "ready: "+string(role))
}

// probe responds with ok, or with 503 and the problem if there is one.
func probe(w http.ResponseWriter, problem, ok string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	text := ok
	if problem != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = problem
	}
	_, _ = io.WriteString(w, text+"\n")
}

func (s *Server) serveStatus(w http.ResponseWriter, r *http.Request) {
	s.askFresh(r.Context())
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
	_ = json.NewEncoder(w).Encode(v) // an error means that the client is gone
}
