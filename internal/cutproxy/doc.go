// Package cutproxy is a TCP proxy for tests that cuts, holds, slows down and
// refuses connections between a client and a real server.
//
//	p := cutproxy.Start(t, srv.Addr())
//	connect(p.Addr())
//	p.Cut()                                      // resets every connection
//	cut := p.CutAfter(cutproxy.ToClient, 1000)   // in the middle of a reply; <-cut
//	p.Pause(); p.Resume()                        // bytes are held, connections stay
//	p.Strand()                                   // half-open: nothing comes any more, and nobody is told
//	p.Slow(cutproxy.Slowness{Latency: 20 * time.Millisecond, BytesPerSecond: 1 << 20})
//	p.Refuse(); p.Accept()                       // connection refused, on the same port
//	p.Redirect(other.Addr())                     // where new connections go
//
// A Kafka client follows the addresses that brokers advertise, so a proxy has
// to be known to the broker: [kafkatest.Config] has a field for it, and kfake
// takes p.Listen:
//
//	p := cutproxy.Start(t, "")
//	k := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ListenFn(p.Listen))
package cutproxy
