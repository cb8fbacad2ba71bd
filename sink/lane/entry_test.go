package lane

import (
	"testing"
	"unsafe"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Names of headers may be in a buffer that the caller uses again after Send.
func TestHeaderNamesAreCopied(t *testing.T) {
	onStage(t, Options{}, sink.WriterConfig{}, func(s *stage) {
		buffer := make([]byte, 2)
		for seq, name := range []string{"tx", "no", "no"} { // the third entry has the memory of an earlier one
			copy(buffer, name)
			r := sink.Record{Seq: uint64(seq + 1), Topic: "t", Key: []byte("a"), Headers: []sink.Header{
				{Key: "id", Value: []byte("1")}, {Key: unsafe.String(&buffer[0], len(buffer)), Value: []byte("2")},
			}}
			if err := s.writer.Send(s.Context(), &r); err != nil {
				s.Fatal(err)
			}
			s.writer.Flush()
			copy(buffer, "??")
			_, requests := s.published()
			if got := requests[0].Records[0].Headers[1].Key; got != name {
				s.Errorf("the name of the header is %q, not %q", got, name)
			}
			ack(requests...)
		}
		s.Drain(3)
	})
}
