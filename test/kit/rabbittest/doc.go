// Package rabbittest provides RabbitMQ servers to tests.
//
// A package that uses it has this TestMain, which stops the shared server after the tests:
//
//	func TestMain(m *testing.M) { rabbittest.Main(m) }
//
// Each of these functions returns a *[Server]. Only a full run (OUTBOX_TEST_FULL=1) starts one, because it needs an
// installed RabbitMQ and some seconds. In any other run the functions skip the test.
//
//	r := rabbittest.Real(t)                        // the server that all tests of the binary share
//	r := rabbittest.Start(t, rabbittest.Config{})  // a server of this test: Shutdown, Kill, Pause, Resume, Restart
//
// StartCluster starts three servers that form a [Cluster].
//
// A test uses the Server like this:
//
//	url := r.VHost(t)                   // a new virtual host of this test, in which guest has all permissions
//	r.Run(t, "list_queues", "--vhost")  // runs rabbitmqctl
//
// RabbitMQ comes from the operating system's package, for example Debian's rabbitmq-server. It runs as an ordinary
// process in a temporary directory, with an epmd of its own, and listens on 127.0.0.1 only. The service of the package
// need not run.
package rabbittest
