// Package deploy has units, manifests and rules to run the relay, and tests that they work. docs/deploying.md
// explains how to use them.
package deploy
