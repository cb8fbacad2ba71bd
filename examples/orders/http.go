package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/google/uuid"
)

// maxBody is the largest request body in bytes.
const maxBody = 64 << 10

// newHandler returns the service:
//
//	POST /orders              {"customer": …, "cents": …} with Idempotency-Key: 201, or 200 if the request is repeated
//	GET  /orders/{id}         200
//	POST /orders/{id}/pay     200, also if the request is repeated
//	POST /orders/{id}/cancel  200, also if the request is repeated
//
// The response is the order, or {"error": …}.
func newHandler(o *orders, log *slog.Logger) http.Handler {
	h := handler{o, log}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", h.place)
	mux.HandleFunc("GET /orders/{id}", h.withOrder(func(r *http.Request, id uuid.UUID) (order, error) { return o.get(r.Context(), id) }))
	mux.HandleFunc("POST /orders/{id}/pay", h.withOrder(func(r *http.Request, id uuid.UUID) (order, error) { return o.end(r.Context(), id, paid) }))
	mux.HandleFunc("POST /orders/{id}/cancel", h.withOrder(func(r *http.Request, id uuid.UUID) (order, error) { return o.end(r.Context(), id, canceled) }))
	return mux
}

type handler struct {
	orders *orders
	log    *slog.Logger
}

func (h handler) place(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Customer string `json:"customer"`
		Cents    int64  `json:"cents"`
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	key := r.Header.Get("Idempotency-Key")
	switch err := decoder.Decode(&body); {
	case err != nil:
		h.respondError(w, r, http.StatusBadRequest, err)
	case key == "" || len(key) > 255:
		h.respondError(w, r, http.StatusBadRequest, errors.New("the header Idempotency-Key with 1 to 255 bytes is required"))
	case body.Customer == "" || body.Cents <= 0:
		h.respondError(w, r, http.StatusBadRequest, errors.New("customer and cents are required"))
	default:
		placed, fresh, err := h.orders.place(r.Context(), key, body.Customer, body.Cents)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		status := http.StatusOK
		if fresh {
			status = http.StatusCreated
		}
		h.respond(w, r, status, placed)
	}
}

// withOrder returns a handler that calls f with the id in the path, and responds with its order.
func (h handler) withOrder(f func(r *http.Request, id uuid.UUID) (order, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := uuid.Parse(r.PathValue("id"))
		if err != nil {
			h.fail(w, r, errNoOrder)
			return
		}
		found, err := f(r, id)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		h.respond(w, r, http.StatusOK, found)
	}
}

// fail reports errors of the client to the client, and logs all others.
func (h handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, errNoOrder):
		h.respondError(w, r, http.StatusNotFound, err)
	case errors.Is(err, errEnded):
		h.respondError(w, r, http.StatusConflict, err)
	case errors.Is(err, errOtherKey):
		h.respondError(w, r, http.StatusUnprocessableEntity, err)
	default:
		h.log.ErrorContext(r.Context(), "request failed", slog.String("path", r.URL.Path), slog.Any("err", err))
		h.respondError(w, r, http.StatusServiceUnavailable, errors.New("internal error; retry the request"))
	}
}

func (h handler) respondError(w http.ResponseWriter, r *http.Request, status int, err error) {
	h.respond(w, r, status, map[string]string{"error": err.Error()})
}

func (h handler) respond(w http.ResponseWriter, r *http.Request, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil { // the client is gone and will repeat the request
		h.log.WarnContext(r.Context(), "response not sent", slog.Any("err", err))
	}
}
