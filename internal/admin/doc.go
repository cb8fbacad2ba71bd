// Package admin shows a running relay: Prometheus metrics, probes, a JSON status and a live
// page, over HTTP.
//
// A [Server] is made first, takes the latencies that [Server.Observe] has the relay tell it, and
// looks at the relay once a second while [Server.Run] runs. Every answer is made of the last look
// and of nothing else, so that requests cost the relay nothing, however many there are, and one
// that got stuck can still be asked.
//
// What is shown are names, numbers, positions and errors: no payload and no secret.
package admin
