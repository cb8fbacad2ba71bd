// Package natstest provides NATS servers with JetStream to tests.
//
//	s := natstest.Start(t)                       // a server in this process, in every run
//	s := natstest.Start(t, func(o *server.Options) { o.Users = … })
//	c := natstest.StartCluster(t)                // three processes: Kill, Pause, Resume, Restart; only in a full run
//
// A test uses them like this:
//
//	stream := s.Stream(t, jetstream.StreamConfig{})  // creates a stream with a unique name and a subject of the same name
//	publish(s.URL(), stream, …)                      // runs the tested code
//	msgs := s.ReadAll(t, stream)                     // reads all messages that are in the stream now
//
// Servers listen on 127.0.0.1 and store their data in a temporary directory. A test that needs faults of the network
// starts a faultproxy.Proxy and connects the tested code to its address.
package natstest
