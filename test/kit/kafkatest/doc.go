// Package kafkatest gives tests a Kafka: a real one or the in-process kfake.
//
// A package that uses one has this TestMain (package pgtest wraps
// alike):
//
//	func TestMain(m *testing.M) { kafkatest.Main(m) }
//
// and then, in a test:
//
//	k := kafkatest.Broker(t)                     // the Kafka of the run: a kfake, in a full run the real one
//	k := kafkatest.Real(t)                       // the real broker all tests share; only in a full run
//	k := kafkatest.Fake(t)                       // kfake, with kfake's methods to control it
//	k := kafkatest.Start(t, kafkatest.Config{})  // a real broker of its own: Shutdown, Kill, Pause, Resume, Restart; only in a full run
//
// all of which are, or embed, a *[Cluster]:
//
//	topic := k.Topic(t, 4, nil)         // created now, deleted at the end; its name is unique
//	client.Produce(k.Addrs, topic, …)   // what is to be tested
//	records := k.ReadAll(t, topic)      // everything that is in the topic now
//	records := k.ReadN(t, 100, topic)   // waits until there are 100
//	c := k.Collect(t, f, topic)         // f is called with every record until the test ends; c.CatchUp, c.WaitFor
//
// The readers use franz-go and so share no code with what is tested.
//
// The real broker: OUTBOX_TEST_KAFKA=host:port, as printed by
//
//	go run ./test/kit/kafkatest/broker up
//
// which lets all packages share one. Unset, a test binary starts its own from
// the Maven artifacts of Apache Kafka, downloaded once into the user's cache;
// that needs java (17 or newer) and mvn. Only a full run (OUTBOX_TEST_FULL=1)
// uses a real broker, and fails without one.
package kafkatest
