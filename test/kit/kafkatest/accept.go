package kafkatest

import "github.com/twmb/franz-go/pkg/kmsg"

// Accept answers req as a broker that has stored everything, for a kfake that is to store
// nothing: see its ControlKey.
func Accept(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = req.Version
	for _, t := range req.Topics {
		answer := kmsg.NewProduceResponseTopic()
		answer.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewProduceResponseTopicPartition()
			part.Partition = p.Partition
			answer.Partitions = append(answer.Partitions, part)
		}
		resp.Topics = append(resp.Topics, answer)
	}
	return resp
}
