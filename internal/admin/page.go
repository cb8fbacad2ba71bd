package admin

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
)

//go:embed page.html
var pageHTML string

// A page is the live page. Its content security policy allows only its own script and style, and requests to its own
// server.
type page struct{ policy string }

func newPage() *page {
	return &page{policy: "default-src 'none'; script-src " + hashOf("script") + "; style-src " + hashOf("style") +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
}

// hashOf returns the source expression of the page's one element of that name:
// https://www.w3.org/TR/CSP3/#grammardef-hash-source
func hashOf(element string) string {
	_, rest, _ := strings.Cut(pageHTML, "<"+element+">")
	content, _, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func (p *page) serve(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Security-Policy", p.policy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, pageHTML)
}
