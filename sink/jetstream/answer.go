package jetstream

import (
	"bytes"
	"encoding/json"
	"errors"
)

var errNoAck = errors.New("a response that is no acknowledgement; another program responds to the subject")

// parseAck returns the sequence of the message that a response acknowledges, or the error that it has.
func parseAck(data []byte) (sequence uint64, err error) {
	if sequence, ok := parsePlainAck(data); ok {
		return sequence, nil
	}
	var response struct {
		Stream   string `json:"stream"`
		Sequence uint64 `json:"seq"`
		Error    *struct {
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &response); err != nil {
		return 0, errNoAck
	}
	switch {
	case response.Error != nil:
		return 0, errorOf(response.Error.ErrCode, response.Error.Description)
	case response.Stream == "" || response.Sequence == 0:
		return 0, errNoAck
	}
	return response.Sequence, nil
}

// parsePlainAck parses the form in which servers usually send an acknowledgement: {"stream":"NAME","seq":123}, with spaces
// anywhere after a colon or comma.
func parsePlainAck(data []byte) (sequence uint64, ok bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok {
		return 0, false
	}
	end := bytes.IndexByte(rest, '"')
	if end <= 0 || bytes.IndexByte(rest[:end], '\\') >= 0 {
		return 0, false
	}
	if rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest[end+1:], ", "), []byte(`"seq":`)); !ok {
		return 0, false
	}
	digits := 0
	rest = bytes.TrimLeft(rest, " ")
	for ; digits < len(rest) && digits < maxDigits && '0' <= rest[digits] && rest[digits] <= '9'; digits++ {
		sequence = sequence*10 + uint64(rest[digits]-'0')
	}
	if sequence == 0 || !bytes.Equal(rest[digits:], []byte("}")) {
		return 0, false
	}
	return sequence, true
}

const maxDigits = 19 // of a sequence that certainly fits
