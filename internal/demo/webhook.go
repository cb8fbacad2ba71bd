package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/outbox-cdc/outbox-cdc/sink/webhook"
)

const webhookPath = "/events/"

func webhookKind() kind {
	return kind{
		name: "webhook", title: "HTTP receiver", from: "a receiver in its process",
		flags: "-c outbox-cdc.yaml", page: "docs/webhook.md", open: openWebhook,
	}
}

func openWebhook(ctx context.Context, r *rig) (*broker, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r.later(func(context.Context) error {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) { // consume has closed it
			return err
		}
		return nil
	})
	cfg := webhook.Config{URL: "http://" + l.Addr().String() + webhookPath}
	names, err := cfg.Names()
	if err != nil {
		return nil, err
	}
	return &broker{
		details: "a receiver in this process, on " + l.Addr().String(), addrs: []string{cfg.URL},
		sink: cfg, names: names, topic: r.names.prefix + route,
		consume: func(ctx context.Context, take func(message)) error { return serveEvents(ctx, l, take) },
	}, nil
}

// serveEvents serves requests of a relay. A response of 204 acknowledges the event.
func serveEvents(ctx context.Context, l net.Listener, take func(message)) error {
	var n atomic.Int64
	handler := http.NewServeMux()
	handler.HandleFunc("POST "+webhookPath, func(w http.ResponseWriter, req *http.Request) {
		key, err := url.PathUnescape(req.Header.Get("ce-subject"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return // the relay sends the event again
		}
		take(message{
			destination: strings.TrimPrefix(req.URL.Path, webhookPath), key: key,
			id: req.Header.Get("ce-id"), kind: req.Header.Get("ce-type"), offset: n.Add(1),
		})
		w.WriteHeader(http.StatusNoContent)
	})
	server := &http.Server{Handler: handler, ReadHeaderTimeout: contactTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("receive events: %w", err)
	}
	return nil
}
