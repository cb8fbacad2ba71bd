// Package check tests what is in deploy/ with the libraries of those who read it: Docker's linter, Compose's loader,
// Kubernetes' types and pod security standards, Prometheus' parser and promtool.
//
// It is a module of its own, so that none of this is in the relay's go.mod. Whether the relay
// works as deployed is tested in the directory above.
package check
