package admin

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A browser is a headless Chromium with one open page. The test controls it through a pair of pipes:
// https://chromedevtools.github.io/devtools-protocol/
type browser struct {
	t        *testing.T
	in       *os.File
	messages chan reply
	session  string
	id       int
	problems []string // errors in the page's console
}

type reply struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	need.FullRun(t, "it needs Chromium")
	path := need.Program(t, "chromium")
	childIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// The context of the test ends before its cleanup. If Chromium were killed then, its child processes would
	// remain and write to its profile.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--hide-scrollbars", "--no-first-run", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{childIn, childOut} // file descriptors 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	childIn.Close()
	childOut.Close()
	b := &browser{t: t, in: in, messages: make(chan reply, 1024)}
	go func() {
		defer close(b.messages)
		r := bufio.NewReader(out)
		for {
			data, err := r.ReadBytes(0)
			if err != nil {
				return
			}
			var m reply
			if json.Unmarshal(data[:len(data)-1], &m) == nil {
				b.messages <- m
			}
		}
	}()
	t.Cleanup(func() {
		b.session = ""
		fmt.Fprintf(in, `{"id":0,"method":"Browser.close"}`+"\x00")
		done := make(chan struct{})
		go func() { _ = cmd.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-done
		}
		in.Close()
		out.Close()
		wait.For(t, "all processes of Chromium to exit", func() bool { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) != nil })
	})
	var target struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// call sends a command and decodes its result.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	b.id++
	command := map[string]any{"id": b.id, "method": method, "params": params}
	if params == nil {
		command["params"] = map[string]any{}
	}
	if b.session != "" {
		command["sessionId"] = b.session
	}
	data, err := json.Marshal(command)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(data, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	timeout := time.After(wait.Patience())
	for {
		select {
		case m, ok := <-b.messages:
			switch {
			case !ok:
				b.t.Fatalf("%s: chromium has ended", method)
			case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded":
				b.problems = append(b.problems, string(m.Params))
			case m.ID != b.id:
			case m.Error != nil:
				b.t.Fatalf("%s: %s", method, m.Error)
			default:
				if result != nil {
					if err := json.Unmarshal(m.Result, result); err != nil {
						b.t.Fatalf("%s: %v", method, err)
					}
				}
				return
			}
		case <-timeout:
			b.t.Fatalf("%s: no answer", method)
		}
	}
}

// size sets the size of the window and the preferred color scheme.
func (b *browser) size(width, height int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// open loads url and waits until the page has requested the status twice.
func (b *browser) open(url string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.until(`Number(document.body.dataset.polls) >= 2`)
}

// eval returns the value of an expression in the page.
func (b *browser) eval(expression string) any {
	b.t.Helper()
	var out struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if out.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, out.ExceptionDetails)
	}
	return out.Result.Value
}

// until waits until an expression in the page is true.
func (b *browser) until(expression string) {
	b.t.Helper()
	wait.For(b.t, expression, func() bool {
		return b.eval(`document.readyState === 'complete' && (`+expression+`)`) == true
	}, func() any { return fmt.Sprintf("the page says:\n%v", b.eval(`document.body.innerText`)) })
}

// text returns the text of the first element that matches the selector.
func (b *browser) text(selector string) string {
	b.t.Helper()
	text, _ := b.eval(fmt.Sprintf(`document.querySelector(%q).innerText`, selector)).(string)
	return text
}

// press presses a key.
func (b *browser) press(key string) {
	b.t.Helper()
	event := map[string]any{"key": key, "code": key, "windowsVirtualKeyCode": map[string]int{"Tab": 9, "Enter": 13, "ArrowLeft": 37}[key]}
	if key == "Enter" {
		event["text"] = "\r"
	}
	for _, event["type"] = range []string{"keyDown", "keyUp"} {
		b.call("Input.dispatchKeyEvent", event, nil)
	}
}

// shoot writes a screenshot of the whole page.
func (b *browser) shoot(path string) {
	b.t.Helper()
	var out struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &out)
	data, err := base64.StdEncoding.DecodeString(out.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
