package encode

// Names are the rules of a broker for names of destinations. Each package below sink has them.
type Names interface {
	// Illegal returns why records cannot be sent to a destination of this name, or "" if they can. The result is the
	// predicate of a sentence about the name, such as "is empty". It must not contain the name: it comes from a row.
	Illegal(name string) string
}
