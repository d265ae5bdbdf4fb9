package contract_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/linkreel/linkreel/libs/identity"
)

var update = flag.Bool("update", false, "rewrite docs/api/answers.json with the running system's responses")

const (
	pagesFolder = "../../docs/api"
	answersFile = pagesFolder + "/answers.json"
)

// page is a page in docs/api with its code blocks, in order.
type page struct {
	name   string
	blocks []block
}

// block is one block of code. operation is the example that the block belongs to. It is empty
// outside the generated sections.
type block struct{ language, operation, text string }

var (
	fence   = regexp.MustCompile("(?s)```([a-z]+(?: cli)?)\n(.*?)```")
	listing = regexp.MustCompile(`(?s)<!-- operations ([^>]*?) -->\n(.*?)<!-- end -->`)
)

func pages(t *testing.T) (out []page) {
	t.Helper()
	paths, err := filepath.Glob(pagesFolder + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		p := page{name: strings.TrimSuffix(filepath.Base(path), ".md")}
		add := func(operation, text string) {
			for _, b := range fence.FindAllStringSubmatch(text, -1) {
				p.blocks = append(p.blocks, block{b[1], operation, b[2]})
			}
		}
		rest := string(text)
		for {
			m := listing.FindStringSubmatchIndex(rest)
			if m == nil {
				break
			}
			add("", rest[:m[0]])
			names, sections := strings.Fields(rest[m[2]:m[3]]), strings.Split("\n"+rest[m[4]:m[5]], "\n### ")[1:]
			if len(names) != len(sections) {
				t.Fatalf("%s has %d sections for %d operations; run `go -C tools run ./clients`", path, len(sections), len(names))
			}
			for i, name := range names {
				add(name, sections[i])
			}
			rest = rest[m[1]:]
		}
		add("", rest)
		out = append(out, p)
	}
	if len(out) < 15 {
		t.Fatalf("docs/api has only %d pages, want at least 15", len(out))
	}
	return out
}

// code joins the blocks in a language.
func (p page) code(language string) string {
	var out strings.Builder
	for _, b := range p.blocks {
		if b.language == language {
			out.WriteString(b.text)
		}
	}
	return out.String()
}

// reader returns an empty folder and an environment with a new account, for one reader of one page.
func reader(t *testing.T, clip []byte) (dir string, env []string) {
	t.Helper()
	bin, err := linkreel()
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := key(t, &http.Client{Timeout: 30 * time.Second}, "business", identity.AllScopes.Names())
	stack, err := json.Marshal(map[string]any{
		"baseUrl": running.BaseURL, "shortBaseUrl": running.ShortBaseURL, "uploadUrl": running.UploadURL,
		"adminUrl": running.AdminURL, "adminToken": running.AdminToken, "keys": map[string]string{"business": secret},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, text := range map[string][]byte{".local/stack.json": stack, "clip.mp4": clip} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, []string{
		"HOME=" + dir, "XDG_CONFIG_HOME=" + dir + "/config", "XDG_CACHE_HOME=" + dir + "/cache",
		"PATH=" + filepath.Dir(bin) + ":" + os.Getenv("PATH"),
		"BASE=" + running.BaseURL, "KEY=" + secret, "ADMIN=" + running.AdminURL, "TOKEN=" + running.AdminToken,
	}
}

// Readers can paste all of a page's code in one language, from top to bottom. The responses to the
// curl calls must match the ones on the page.
func TestPagesRunAsPasted(t *testing.T) {
	t.Parallel()
	all := pages(t)
	film := filepath.Join(t.TempDir(), "clip.mp4")
	clip(t, film)
	data, err := os.ReadFile(film)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("curl", func(t *testing.T) {
		t.Parallel()
		want, got := recorded(t), map[string]recording{}
		var lock sync.Mutex
		each(t, all, "sh", data, func(t *testing.T, p page, dir string, env []string) {
			answers := curl(t, p, dir, env)
			lock.Lock()
			defer lock.Unlock()
			maps.Copy(got, answers)
		})
		judge(t, want, got)
	})
	t.Run("command line", func(t *testing.T) {
		t.Parallel()
		each(t, all, "sh cli", data, func(t *testing.T, p page, dir string, env []string) {
			run(t, dir, exec.CommandContext(t.Context(), "bash", "-xc", "set -euo pipefail\n"+p.code("sh cli")), env...)
		})
	})
	t.Run("Python", func(t *testing.T) {
		t.Parallel()
		each(t, all, "python", data, func(t *testing.T, p page, dir string, env []string) {
			write(t, filepath.Join(dir, "page.py"), p.code("python"))
			env = append(env, "PYTHONPATH="+absolute(t, pythonClient), "PYTHONDONTWRITEBYTECODE=1")
			run(t, dir, exec.CommandContext(t.Context(), "python3", "page.py"), env...)
		})
	})
	t.Run("TypeScript", func(t *testing.T) {
		t.Parallel()
		programs := typescriptPages(t, all)
		each(t, all, "ts", data, func(t *testing.T, p page, dir string, env []string) {
			run(t, dir, exec.CommandContext(t.Context(), "node", filepath.Join(programs, p.name+".mjs")), env...)
		})
	})
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		programs := goPages(t, all)
		each(t, all, "go", data, func(t *testing.T, p page, dir string, env []string) {
			run(t, dir, exec.CommandContext(t.Context(), filepath.Join(programs, p.name)), env...)
		})
	})
}

// each calls read concurrently for every page with code in a language, and waits for all of the
// calls to return.
func each(t *testing.T, all []page, language string, clip []byte, read func(t *testing.T, p page, dir string, env []string)) {
	t.Helper()
	t.Run("pages", func(t *testing.T) {
		for _, p := range all {
			if p.code(language) == "" {
				continue
			}
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				dir, env := reader(t, clip)
				read(t, p, dir, env)
			})
		}
	})
}

// typescriptPages compiles all pages together, with the strictest settings that readers can choose.
// It returns a folder with the same code as JavaScript programs because many readers do not compile it.
func typescriptPages(t *testing.T, all []page) string {
	t.Helper()
	programs := map[string]string{}
	for _, p := range all {
		if code := p.code("ts"); code != "" {
			programs[p.name+".ts"] = code
		}
	}
	dir := compiled(t, programs)
	for name, code := range programs {
		write(t, filepath.Join(dir, strings.TrimSuffix(name, ".ts")+".mjs"), code)
	}
	return dir
}

// compiled compiles TypeScript programs, given by file name, in strict mode. It returns the folder
// with the results.
func compiled(t *testing.T, programs map[string]string) string {
	t.Helper()
	compiler := nodeTool(t, "tsc")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "package.json"), `{"type": "module"}`)
	for name, target := range map[string]string{
		"@linkreel/client": "../../libs/clients/typescript", "@types": nodeTools + "/node_modules/@types", "undici-types": nodeTools + "/node_modules/undici-types",
	} {
		link := filepath.Join(dir, "node_modules", name)
		if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(absolute(t, target), link); err != nil {
			t.Fatal(err)
		}
	}
	arguments := []string{"--strict", "--target", "es2022", "--module", "nodenext", "--types", "node", "--skipLibCheck"}
	for name, code := range programs {
		arguments = append(arguments, name)
		write(t, filepath.Join(dir, name), code)
	}
	run(t, dir, exec.CommandContext(t.Context(), compiler, arguments...))
	return dir
}

// goPages inserts the lines from each page into the program at the top of the page, and builds the
// programs. It returns their folder.
func goPages(t *testing.T, all []page) string {
	t.Helper()
	const place = "\t// the lines of the examples\n"
	dir := t.TempDir()
	goModule(t, dir)
	for _, p := range all {
		frame, lines := "", ""
		for _, b := range p.blocks {
			switch {
			case b.language != "go":
			case frame == "":
				frame = b.text
			default:
				lines += b.text
			}
		}
		if frame == "" {
			continue
		}
		if strings.Count(frame, place) != 1 {
			t.Fatalf("the program at the top of %s does not contain the placeholder line", p.name)
		}
		write(t, filepath.Join(dir, p.name, "main.go"), strings.Replace(frame, place, lines, 1))
	}
	run(t, dir, exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", "bin/", "./..."), "GOWORK=off")
	return filepath.Join(dir, "bin")
}

// curl runs the shell lines on a page and returns the responses from its operations.
func curl(t *testing.T, p page, dir string, env []string) map[string]recording {
	t.Helper()
	examples := sources(t)
	script := `set -euo pipefail
curl() {
	if [ "${OPERATION:-}" ]; then command curl --retry 2 -w '%{stderr}\n### %{http_code} %{content_type}\n' "$@"; else command curl --fail-with-body --retry 2 "$@"; fi
}
`
	brief := func(b block) bool { return b.operation == "" || examples[b.operation].Brief }
	for _, b := range p.blocks {
		switch {
		case b.language != "sh":
		case brief(b):
			script += b.text
		default:
			script += "OPERATION=" + b.operation + "\n{\n" + b.text + "} > " + b.operation + ".out 2> " + b.operation + ".err\nOPERATION=\n"
		}
	}
	script = strings.ReplaceAll(script, "wait=25", "wait=1") // a new account has no events to wait for
	run(t, dir, exec.CommandContext(t.Context(), "bash", "-xc", script), env...)
	out := map[string]recording{}
	s := newScrubber(time.Now())
	for _, b := range p.blocks {
		if b.language != "sh" || brief(b) {
			continue
		}
		body, err := os.ReadFile(filepath.Join(dir, b.operation+".out"))
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		said, err := os.ReadFile(filepath.Join(dir, b.operation+".err"))
		if err != nil {
			t.Fatal(err)
		}
		head := regexp.MustCompile(`(?m)^### (\d+) (.*)$`).FindSubmatch(said)
		if head == nil {
			t.Errorf("%s: %s got no response: %s", p.name, b.operation, said)
			continue
		}
		scrub := s.scrub
		if examples[b.operation].Varies { // other tests' changes must not change the samples of later blocks
			own := &scrubber{now: s.now, samples: maps.Clone(s.samples), counts: maps.Clone(s.counts)}
			scrub = own.scrub
		}
		r := recording{}
		r.Status, _ = strconv.Atoi(string(head[1])) // the pattern matches only digits
		kind, _, _ := strings.Cut(string(head[2]), ";")
		switch {
		case kind == "application/json":
			var text bytes.Buffer
			if err := json.Indent(&text, bytes.TrimSpace(body), "", "  "); err != nil {
				t.Errorf("%s: the response from %s is %q, want JSON: %v", p.name, b.operation, body, err)
				continue
			}
			r.Body = json.RawMessage(scrub(text.String()))
		case kind == "application/jsonl":
			line, _, _ := strings.Cut(string(body), "\n")
			text, err := json.Marshal(scrub(line))
			if err != nil {
				t.Fatal(err)
			}
			r.Type, r.Body = kind, text
		case kind != "":
			r.Type, r.Body = kind, json.RawMessage(`""`)
		}
		out[b.operation] = r
	}
	return out
}

// recording is one response in docs/api/answers.json. The pages show it.
type recording struct {
	Status int             `json:"status"`
	Type   string          `json:"type,omitempty"`
	Body   json.RawMessage `json:"body,omitempty"`
}

func recorded(t *testing.T) map[string]recording {
	t.Helper()
	text, err := os.ReadFile(answersFile)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]recording{}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// source contains the settings in examples.yaml for checking a response. A brief example only
// prepares data for other examples, so the page does not show its response.
type source struct {
	Error         string
	Varies, Brief bool
}

func sources(t *testing.T) (out map[string]source) {
	t.Helper()
	text, err := os.ReadFile("../../tools/clients/examples.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// judge compares responses with the recorded ones. With -update, it records them.
func judge(t *testing.T, want, got map[string]recording) {
	t.Helper()
	examples := sources(t)
	for name, r := range got {
		var refusal struct{ Error struct{ Code string } }
		_ = json.Unmarshal(r.Body, &refusal) // a successful response has no error code
		if code := refusal.Error.Code; code != examples[name].Error || r.Status >= 400 && code == "" {
			t.Errorf("%s returned %d %s, want the error %q", name, r.Status, r.Body, examples[name].Error)
		}
	}
	if *update {
		if t.Failed() {
			t.Fatal("recorded nothing, because some responses are wrong")
		}
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(got); err != nil {
			t.Fatal(err)
		}
		write(t, answersFile, out.String())
		return
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		w, g := want[name], got[name]
		if w.Status != g.Status || w.Type != g.Type {
			t.Errorf("%s returned %d %s, but the page shows %d %s", name, g.Status, g.Type, w.Status, w.Type)
			continue
		}
		var wanted, given any
		_ = json.Unmarshal(w.Body, &wanted) // without a body, the value is nil
		_ = json.Unmarshal(g.Body, &given)
		if examples[name].Varies {
			wanted, given = shape(wanted), shape(given)
		}
		if diff := cmp.Diff(wanted, given); diff != "" {
			t.Errorf("%s (-on the page +response):\n%s\nrun the test with -update, then `go -C tools run ./clients`", name, diff)
		}
	}
}

// shape keeps the field names of an object and of nested objects. A list may be empty in one
// response but not in the other.
func shape(v any) any {
	o, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	out := map[string]any{}
	for name, value := range o {
		out[name] = shape(value)
	}
	return out
}

// scrubber replaces values that differ between runs, such as IDs and times, with samples. On a
// page, the same ID always gets the same sample.
type scrubber struct {
	now     time.Time
	samples map[string]string
	counts  map[string]int
}

func newScrubber(now time.Time) *scrubber {
	return &scrubber{now: now, samples: map[string]string{}, counts: map[string]int{}}
}

// sample returns the nth sample of a kind of ID, with the alphabet and length of a real one.
func (s *scrubber) sample(kind, of string) string {
	if known := s.samples[of]; known != "" {
		return known
	}
	s.counts[kind]++
	const letters = "abcdefghjkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", kind, s.counts[kind]))
	out := make([]byte, len(of))
	for i := range out {
		out[i] = letters[int(sum[i%len(sum)])%len(letters)]
	}
	s.samples[of] = string(out)
	return string(out)
}

var (
	anID    = regexp.MustCompile(`\b(lnk|vid|dom|key|acc|whk|evt|dlv|mem|mbr|inv|tkd|[a-z]{2,4})_([A-Za-z0-9]{12,})`)
	aSecret = regexp.MustCompile(`\b(lr_[a-z]+_|whsec_)[A-Za-z0-9+/=]+`)
	aSlug   = regexp.MustCompile(`(?:"slug": "|localhost:8081/)([0-9A-Za-z]{13}|[0-9A-Za-z]{7})"`)
	aTime   = regexp.MustCompile(`\b1[0-9]{12}\b`)
	isoTime = regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z`)
	fixed   = []struct {
		what *regexp.Regexp
		with string
	}{
		{regexp.MustCompile(`\?X-Goog-[^"]*`), "?X-Goog-Algorithm=GOOG4-RSA-SHA256&…"},
		{regexp.MustCompile(`\bupload_id=[^"&]+`), "upload_id=…"},
		{regexp.MustCompile(`\b(token|link|t|sig|signature)=[A-Za-z0-9._-]{16,}`), "$1=…"},
		{regexp.MustCompile(`linkreel-verify=[^"]+`), "linkreel-verify=…"},
		{regexp.MustCompile(`"requestId": "[^"]+"`), `"requestId": "4bf92f3577b34da6a3ce929d0e0e4736"`},
		{regexp.MustCompile(`"userCode": "[^"]+"`), `"userCode": "BCDF-GHJK"`},
		{regexp.MustCompile(`\bcode=[A-Za-z0-9]{4}-?[A-Za-z0-9]{4}`), "code=bcdf-ghjk"},
		{regexp.MustCompile(`"nextCursor": ("[^"]+"|[0-9]+)`), `"nextCursor": "uXTV8V0JaoAABmEwrdb7O3doZF81Z3F6QnU2bGFU"`},
		{regexp.MustCompile(`"last4": "[^"]+"`), `"last4": "x3Kq"`},
		{regexp.MustCompile(`/hls/[^/"]+/`), "/hls/…/"},
		{regexp.MustCompile(`"name": "contract"`), `"name": "Example"`},
	}
)

func (s *scrubber) scrub(text string) string {
	for from, to := range map[string]string{
		running.BaseURL: "http://localhost:8080", running.ShortBaseURL: "http://localhost:8081", running.AdminURL: "http://localhost:8082", running.UploadURL: "http://localhost:8083",
	} {
		text = strings.ReplaceAll(text, from, to)
	}
	text = strings.ReplaceAll(text, `\u0026`, "&")
	for _, f := range fixed {
		text = f.what.ReplaceAllString(text, f.with)
	}
	text = aSecret.ReplaceAllString(text, "${1}…")
	text = anID.ReplaceAllStringFunc(text, func(id string) string {
		kind, rest, _ := strings.Cut(id, "_")
		return kind + "_" + s.sample(kind, rest)
	})
	for _, m := range aSlug.FindAllStringSubmatch(text, -1) {
		s.sample("slug"+strconv.Itoa(len(m[1])), m[1])
	}
	for of, sample := range s.samples {
		if len(of) == 7 || len(of) == 13 {
			text = regexp.MustCompile(`\b`+of+`\b`).ReplaceAllString(text, sample)
		}
	}
	sampleNow := time.UnixMilli(1790000000000).UTC()
	moved := func(at time.Time) (time.Time, bool) {
		d := at.Sub(s.now)
		return sampleNow.Add(d.Round(time.Minute)), d > -24*time.Hour && d < 60*24*time.Hour
	}
	text = aTime.ReplaceAllStringFunc(text, func(ms string) string {
		n, _ := strconv.ParseInt(ms, 10, 64) // the pattern matches thirteen digits
		if at, near := moved(time.UnixMilli(n)); near {
			return strconv.FormatInt(at.UnixMilli(), 10)
		}
		return ms
	})
	return isoTime.ReplaceAllStringFunc(text, func(iso string) string {
		at, err := time.Parse(time.RFC3339, iso)
		if err != nil {
			return iso
		}
		if at, near := moved(at); near {
			return at.Format("2006-01-02T15:04:05.000Z")
		}
		return iso
	})
}

// The API must return the sample error shown on the errors page.
func TestTheSampleOfAnErrorIsReal(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	sample := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(doc)
	if sample == nil {
		t.Fatal("docs/errors.md has no JSON sample")
	}
	secret, _ := key(t, &http.Client{Timeout: 30 * time.Second}, "business", nil)
	body := fmt.Sprintf(`{"url": "https://example.com/", "ogTitle": %q}`, strings.Repeat("a", 501))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, running.BaseURL+"/api/v1/links", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	var want, given any
	if err := json.Unmarshal(sample[1], &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(newScrubber(time.Now()).scrub(got.String())), &given); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, given); diff != "" {
		t.Errorf("docs/errors.md (-sample +response):\n%s", diff)
	}
}

// goModule turns a folder into a module that requires the Go client, as the clients' README
// describes.
func goModule(t *testing.T, dir string) {
	t.Helper()
	const client = "github.com/linkreel/linkreel/libs/clients/go"
	write(t, filepath.Join(dir, "go.mod"), "module example\n\ngo 1.26.0\n\nrequire "+client+" v0.0.0\n\nreplace "+client+" => "+absolute(t, "../../libs/clients/go")+"\n")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	out, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
