// Package awstest provides servers that speak the protocols of Amazon SQS and Amazon SNS. [Fake] is an in-process server
// with faults for the ordinary test run. [ElasticMQ] and [Moto] are real emulators, for a full run.
package awstest
