package relay

// A fence decides whether this process may still write, so that two relays do not write the
// records of one slot side by side. It is the only such decision: the sink asks it before each
// request. Once it has closed it stays closed, and the session ends with its reason.
//
// It goes by clocks, and Postgres may free a slot at any moment. So it bounds duplicates; order is
// guarded by the broker, if that rejects an older writer.
type fence struct {
	session source
}

// checkOpen returns nil while the fence is open, otherwise why it has closed. It does not block and
// may be called from any goroutine.
func (f fence) checkOpen() error { return f.session.Expired() }
