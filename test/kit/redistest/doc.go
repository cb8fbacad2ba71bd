// Package redistest runs Redis servers for tests: one server, a primary with a replica and Sentinel, and a
// cluster of three nodes. The program redis-server must be installed. Servers listen on 127.0.0.1 and have
// temporary directories, which are removed when the test ends.
//
// Only a full run starts servers: see package need.
package redistest
