// Package positionfile stores the relay's position in a file, for brokers that have no place for it. The file is as safe
// as its file system: another host does not see it, and a relay that starts without it does not know what was delivered.
package positionfile
