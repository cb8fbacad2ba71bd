package jetstream

import (
	"bytes"
	"encoding/json"
	"errors"
)

var errNoAck = errors.New("a response that is no acknowledgement; another program responds to the subject")

// parseAck returns nil for a response that acknowledges a message, or the error that it has.
func parseAck(data []byte) error {
	if isPlainAck(data) {
		return nil
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
		return errNoAck
	}
	switch {
	case response.Error != nil:
		return errorOf(response.Error.ErrCode, response.Error.Description)
	case response.Stream == "" || response.Sequence == 0:
		return errNoAck
	}
	return nil
}

// isPlainAck reports whether data has the form in which servers usually send an acknowledgement: {"stream":"NAME","seq":123}, with
// spaces anywhere after a colon or comma.
func isPlainAck(data []byte) bool {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok {
		return false
	}
	end := bytes.IndexByte(rest, '"')
	if end <= 0 || bytes.IndexByte(rest[:end], '\\') >= 0 {
		return false
	}
	if rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest[end+1:], ", "), []byte(`"seq":`)); !ok {
		return false
	}
	digits, ok := bytes.CutSuffix(bytes.TrimLeft(rest, " "), []byte("}"))
	return ok && len(digits) > 0 && len(digits) <= maxDigits && digits[0] != '0' && len(bytes.Trim(digits, "0123456789")) == 0
}

const maxDigits = 19 // of a sequence that certainly fits
