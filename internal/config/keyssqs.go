package config

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/sink/lane"
	"github.com/outbox-cdc/outbox-cdc/sink/sqs"
)

func (c *Config) sqsKeys() []key {
	return slices.Concat([]key{
		{
			path: "sink.sqs",
			doc:  "Queues of Amazon SQS and topics of Amazon SNS, with the standard credential chain of AWS. The section may be empty: `sqs: {}`. See [sqs.md](sqs.md).",
		},
		{
			path: "sink.sqs.region", at: &c.Sink.SQS.Region, flag: "sqs-region", usage: "`REGION` of Amazon SQS and SNS", pattern: sqs.RegionPattern, rule: "a region",
			example: "eu-central-1", doc: "Region of destinations that do not name one. Default: that of `AWS_REGION`, of the profile, or of `outbox.topic`.",
		},
		{path: "sink.sqs.profile", at: &c.Sink.SQS.Profile, example: "relay", doc: "Profile of the shared configuration and credentials files. Default: `AWS_PROFILE`, or `default`."},
		{
			path: "sink.sqs.sqs_endpoint", at: &c.Sink.SQS.SQSEndpoint, expands: true, pattern: sqs.EndpointPattern, rule: "a URL that begins with https:// or http://, without user, query and fragment",
			example: "https://vpce-1.sqs.eu-central-1.vpce.amazonaws.com", doc: "URL to use in place of the endpoint of SQS. Default: `AWS_ENDPOINT_URL_SQS`, or that of the region.",
		},
		{
			path: "sink.sqs.sns_endpoint", at: &c.Sink.SQS.SNSEndpoint, expands: true, pattern: sqs.EndpointPattern, rule: "a URL that begins with https:// or http://, without user, query and fragment",
			doc: "URL to use in place of the endpoint of SNS. Default: `AWS_ENDPOINT_URL_SNS`, or that of the region.",
		},
		{
			path: "sink.sqs.max_message_bytes", at: &c.Sink.SQS.MaxMessageBytes, min: 1024, max: sqs.LargestMaxBytes, def: sqs.DefaultMaxBytes,
			doc: "Maximum size of a message with its attributes, and of a batch; a larger record is a bad record. Increase it together with `MaximumMessageSize` of the queues and topics.",
		},
		{
			path: "sink.sqs.batches_in_flight", at: &c.Sink.SQS.BatchesInFlight, min: 1, max: 1000, def: sqs.DefaultBatches,
			doc: "Maximum number of requests for a destination at the same time. Each has up to ten records. A key has at most one record in them.",
		},
	}, certificateKeys(atSQS+"tls.", &c.Sink.SQS.TLS), windowKeys(atSQS+"window.", &c.Sink.SQS.Window, sqs.DefaultWindowBytes, lane.DefaultWindowRecords))
}
