// Package status reports the state of a slot and its relay: it asks Postgres about the slot and the relay about itself,
// judges what is wrong and what to do, and draws the report as text. It asks each of them whether or not the other
// responds. It changes nothing. Reports contain names, numbers, positions and errors, but no payloads and no secrets.
package status
