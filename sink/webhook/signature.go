package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// secretPrefix identifies a signing secret.
const secretPrefix = "whsec_"

// The sizes of a signing secret that Standard Webhooks allows, in bytes.
const (
	minSecret = 24
	maxSecret = 64
)

// ParseSecret returns the key of a signing secret: base64 of 24 to 64 bytes, with or without the prefix whsec_. The error
// does not contain the secret.
func ParseSecret(text string) ([]byte, error) {
	encoded := strings.TrimPrefix(strings.TrimSpace(text), secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, errors.New("the signing secret is not base64, with or without whsec_ before it")
	}
	if len(key) < minSecret || len(key) > maxSecret {
		return nil, fmt.Errorf("the signing secret has %d bytes, not %d to %d", len(key), minSecret, maxSecret)
	}
	return key, nil
}

func parseSecrets(texts []string) ([][]byte, error) {
	if len(texts) == 0 {
		return nil, errors.New("there is no signing secret")
	}
	keys := make([][]byte, len(texts))
	for i, text := range texts {
		var err error
		if keys[i], err = ParseSecret(text); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// sign adds the headers of Standard Webhooks: the signature is over id, time and payload. Each attempt has its own time,
// because receivers reject an old one.
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
func (e *envelope) sign(keys [][]byte, now time.Time, payload []byte) {
	id := webhookID(e.id)
	timestamp := strconv.FormatInt(now.Unix(), 10)
	signed := make([]byte, 0, len(id)+len(timestamp)+2)
	signed = append(append(append(append(signed, id...), '.'), timestamp...), '.')
	var signatures []byte
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write(signed)
		mac.Write(payload)
		if i > 0 {
			signatures = append(signatures, ' ')
		}
		signatures = base64.StdEncoding.AppendEncode(append(signatures, "v1,"...), mac.Sum(nil))
	}
	e.header["Webhook-Id"] = []string{id}
	e.header["Webhook-Timestamp"] = []string{timestamp}
	e.header["Webhook-Signature"] = []string{string(signatures)}
}

// webhookID returns the id of an event for the signature, which must not have a full stop: it separates the parts of what
// is signed.
func webhookID(id string) string { return strings.ReplaceAll(id, ".", "%2E") }
