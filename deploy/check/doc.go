// Package check tests the files in deploy/ with the libraries of the programs that read them: Docker's linter,
// Compose's loader, Helm, Kubernetes' types and pod security standards, Prometheus' parser and promtool, actionlint.
//
// It is a separate module, so that these libraries are not in the relay's go.mod. The tests in the parent
// directory run the relay as deployed.
package check
