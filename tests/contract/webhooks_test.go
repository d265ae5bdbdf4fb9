package contract_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The snippets in docs/webhooks.md must accept a signed message and reject an altered one.
func TestSnippetsVerifyWebhooks(t *testing.T) {
	t.Parallel()
	needNode(t)
	doc, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Verify it\n")
	section, _, _ = strings.Cut(section, "\n## ")
	snippet := func(lang string) string {
		b := regexp.MustCompile("(?s)```" + lang + "\n(.*?)```").FindStringSubmatch(section)
		if b == nil {
			t.Fatalf("the section has no snippet in %s", lang)
		}
		return b[1]
	}
	clients, err := filepath.Abs("../../libs/clients")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("verify.py", `import os, sys
class request:
    headers = {"webhook-id": os.environ["ID"], "webhook-timestamp": os.environ["TIMESTAMP"], "webhook-signature": os.environ["SIGNATURE"]}
    @staticmethod
    def get_data(): return os.environ["BODY"].encode()
def abort(code): sys.exit("not verified")
secret = os.environ["SECRET"]
`+snippet("python")+"print('verified')\n")
	imports, rest, _ := strings.Cut(snippet("ts"), "\n\n")
	write("verify.mjs", strings.ReplaceAll(imports, "@linkreel/client", clients+"/typescript/dist/index.js")+`
async function handle(request, secret) {
`+rest+`
  return new Response("verified");
}
const { ID, TIMESTAMP, SIGNATURE, BODY, SECRET } = process.env;
const headers = { "webhook-id": ID, "webhook-timestamp": TIMESTAMP, "webhook-signature": SIGNATURE };
const answer = await handle(new Request("http://localhost/", { method: "POST", headers, body: BODY }), SECRET);
console.log(await answer.text());
`)
	write("verify.sh", snippet("sh"))
	_, command, ok := strings.Cut(section, "```sh\nexport LINKREEL_WEBHOOK_SECRET")
	if !ok {
		t.Fatal("the section has no lines for the command line")
	}
	command, _, _ = strings.Cut(command, "```")
	bin, err := linkreel()
	if err != nil {
		t.Fatal(err)
	}
	write("command.sh", "linkreel() { "+bin+` "$@" > out 2> err; }
export LINKREEL_WEBHOOK_SECRET`+command+`case $? in
0) sed 's/ evt_1$//' out ;;
5) grep -q '(reason: ' err && echo "not verified" ;;
*) cat err ;;
esac
`)
	goImport, goRest, _ := strings.Cut(snippet("go"), "\n\n")
	goModule(t, dir)
	write("verify.go", `package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
)

`+goImport+`

func main() {
	r := httptest.NewRequest("POST", "/hooks", strings.NewReader(os.Getenv("BODY")))
	for header, name := range map[string]string{"webhook-id": "ID", "webhook-timestamp": "TIMESTAMP", "webhook-signature": "SIGNATURE"} {
		r.Header.Set(header, os.Getenv(name))
	}
	w := httptest.NewRecorder()
	handle(w, r, os.Getenv("SECRET"))
	fmt.Print(w.Body.String())
}

func handle(w http.ResponseWriter, r *http.Request, secret string) {
`+goRest+`
	fmt.Fprint(w, "verified")
}
`)
	run(t, dir, exec.CommandContext(t.Context(), "go", "build", "-o", "verify", "verify.go"), "GOWORK=off")

	key := []byte("0123456789abcdef0123456789abcdef")
	stamp, body := fmt.Sprint(time.Now().Unix()), `{"type":"video.ready","timestamp":"2026-09-21T13:33:20.000Z","data":{"id":"vid_1","title":"ä <b> & \"c\""}}`
	sign := func(stamp string) string {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "evt_1.%s.%s", stamp, body)
		return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	old := fmt.Sprint(time.Now().Add(-6 * time.Minute).Unix())
	for _, program := range [][]string{{"python3", "verify.py"}, {"node", "verify.mjs"}, {"bash", "verify.sh"}, {"bash", "command.sh"}, {"verify"}} {
		for name, tt := range map[string]struct{ stamp, body, signature, want string }{
			"the signed body":                      {stamp, body, sign(stamp), "verified"},
			"two signatures":                       {stamp, body, "v1,AAAA " + sign(stamp), "verified"},
			"an altered body":                      {stamp, body + " ", sign(stamp), "not verified"},
			"an added newline":                     {stamp, body + "\n", sign(stamp), "not verified"},
			"an old message":                       {old, body, sign(old), "not verified"},
			"an invalid signature":                 {stamp, body, "v1,AAAA", "not verified"},
			"a signature with a different version": {stamp, body, strings.Replace(sign(stamp), "v1,", "v2,", 1), "not verified"},
		} {
			t.Run(program[len(program)-1]+" "+name, func(t *testing.T) {
				t.Parallel()
				command := slices.Clone(program)
				command[len(command)-1] = filepath.Join(dir, command[len(command)-1])
				cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
				cmd.Dir = t.TempDir()
				if err := os.WriteFile(filepath.Join(cmd.Dir, "body"), []byte(tt.body), 0o600); err != nil {
					t.Fatal(err)
				}
				headers := fmt.Sprintf("Host: localhost\nWebhook-Id: evt_1\nWebhook-Timestamp: %s\nWebhook-Signature: %s\n\n", tt.stamp, tt.signature)
				if err := os.WriteFile(filepath.Join(cmd.Dir, "headers"), []byte(headers), 0o600); err != nil {
					t.Fatal(err)
				}
				cmd.Env = append(os.Environ(), "PYTHONPATH="+clients+"/python", "PYTHONDONTWRITEBYTECODE=1", "ID=evt_1", "TIMESTAMP="+tt.stamp, "BODY="+tt.body,
					"SIGNATURE="+tt.signature, "SECRET=whsec_"+base64.StdEncoding.EncodeToString(key))
				out, _ := cmd.CombinedOutput() // the output contains the status
				if got := strings.TrimSpace(string(out)); got != tt.want {
					t.Errorf("the program printed %q, want %q", got, tt.want)
				}
			})
		}
	}
}

// TestAWebhookIsReceivedAsTheDocumentSays follows docs/webhooks.md as a reader does after `make
// run`. Only the port differs.
func TestAWebhookIsReceivedAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Receive one in five minutes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	script := prelude
	for _, b := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		script += b[1] + "\n"
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	script = strings.ReplaceAll(script, "3000", port)
	for old, with := range map[string]string{
		"receiver.py &": "receiver.py > received &",
		"until curl":    "until command curl", // a receiver that accepts only POST responds with 501, which is enough here
		// A reader presses Ctrl-C here. In the test, the command keeps running and receives one
		// more event.
		`--secret "$SECRET"`: `--secret "$SECRET" > forwarded 2> listening &
listener=$!
wait_for() { for i in $(seq 300); do "$@" && return; sleep 0.1; done; echo "not within 30 s: $*"; }
wait_for grep -q '^verified .*webhook.test' received
wait_for grep -q '^verified .*link.created' received
wait_for grep -q Waiting listening
# The listener gets only events after its first request, so make changes until it gets one.
change() { linkreel links create https://go.dev/ > created; sleep 0.2; grep -q '204 No Content' forwarded; }
wait_for change
kill $listener %1
cat received forwarded`,
	} {
		if strings.Count(script, old) != 1 {
			t.Fatalf("docs/webhooks.md has %d occurrences of this line, want 1: %s", strings.Count(script, old), old)
		}
		script = strings.Replace(script, old, with, 1)
	}
	dir := desk(t)
	clients, err := filepath.Abs("../../libs/clients")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "libs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(clients, filepath.Join(dir, "libs", "clients")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "HOME="+dir, "XDG_CONFIG_HOME="+dir+"/config")
	out, err := cmd.CombinedOutput()
	if text := string(out); err != nil || !strings.Contains(text, `verified {"type":"webhook.test"`) || !strings.Contains(text, `verified {"type":"link.created"`) || strings.Contains(text, "NOT VERIFIED") ||
		!strings.Contains(text, "→ 204 No Content") {
		t.Errorf("the script returned %v, want both events verified and forwarded with 204: %s", err, out)
	}
}
