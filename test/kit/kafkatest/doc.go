// Package kafkatest provides Kafka clusters to tests: real brokers and the
// in-process kfake.
//
// A package that uses it has this TestMain, which stops the shared broker after
// the tests. [Wrap] combines it with package pgtest:
//
//	func TestMain(m *testing.M) { kafkatest.Main(m) }
//
// Each of these functions returns a *[Cluster], or a type that embeds one:
//
//	k := kafkatest.Broker(t)                     // the real broker in a full run, otherwise a kfake of this test
//	k := kafkatest.Real(t)                       // the real broker that all tests share; only in a full run
//	k := kafkatest.Fake(t)                       // a kfake; the test controls it through k.Control
//	k := kafkatest.Start(t, kafkatest.Config{})  // a real broker of this test: Shutdown, Kill, Pause, Resume, Restart; only in a full run
//
// A test uses the Cluster like this:
//
//	topic := k.Topic(t, 4, nil)         // creates a topic with a unique name and deletes it when the test ends
//	client.Produce(k.Addrs, topic, …)   // runs the tested code
//	records := k.ReadAll(t, topic)      // reads all records that are in the topic now
//	records := k.ReadN(t, 100, topic)   // waits until it has read 100 records
//	c := k.Collect(t, f, topic)         // calls f with every record until the test ends; see CatchUp
//
// The package uses franz-go, which the relay does not use. So the readers share no
// code with the relay.
//
// # The real broker
//
// Only a full run (OUTBOX_TEST_FULL=1) uses a real broker, and it fails without
// one. Set OUTBOX_TEST_KAFKA=host:port to let all packages share one broker. This
// command starts a broker and prints its address:
//
//	go run ./test/kit/kafkatest/broker up
//
// If OUTBOX_TEST_KAFKA is not set, each test binary starts its own broker from
// the Maven artifacts of Apache Kafka. It downloads them once into the user's
// cache, which needs java (17 or newer) and mvn.
package kafkatest
