// Package deploy is how the relay is run, on machines, in containers and in clusters, and the tests that
// what is here works. docs/deploying.md explains it.
package deploy
