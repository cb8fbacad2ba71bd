// Package status asks Postgres about a slot and a relay about itself, says in a word how things
// are, why, and what to do, and puts it into lines of text. Each side is asked whether or not the
// other answers. It changes nothing, and shows names, numbers, positions and errors: no payload and
// no secret.
package status
