// Package admin is the relay's admin server: Prometheus metrics, probes, a JSON status and a live page over HTTP, and a
// client for them.
//
// Create a [Server], pass the relay's configuration to [Server.Observe], create the relay, and call [Server.Run]. While
// it runs, the Server takes a sample of the relay's state every second. It answers requests from the last sample only.
// So requests do not slow the relay down, and the Server responds even if the relay is stuck.
//
// Responses contain names, numbers, positions and errors, but no payloads and no secrets.
package admin
