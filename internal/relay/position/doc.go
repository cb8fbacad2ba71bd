// Package position stores the relay's position. A [Place] says where: at the broker, if the broker is a
// [sink.PositionOpener], in a file of this host, or nowhere.
//
// A file is as safe as its file system: another host does not see it, and a relay that starts without it does not know
// what was delivered.
package position
