package link

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/linkreel/linkreel/libs/apierr"
)

var own = Hosts{ParseHost("localhost:8081"), ParseHost("lrl.example")}

func TestParseURL(t *testing.T) {
	t.Parallel()
	long := "https://example.com/" + strings.Repeat("a", maxURL-len("https://example.com/"))
	for name, c := range map[string]struct {
		in, location string
		refused      string
	}{
		"plain":                               {in: "https://example.com/a?b=c#d", location: "https://example.com/a?b=c#d"},
		"no path":                             {in: "https://example.com", location: "https://example.com/"},
		"upper-case scheme":                   {in: "HTTPS://Example.COM/A", location: "https://example.com/A"},
		"default port":                        {in: "http://example.com:80/", location: "http://example.com/"},
		"international host name":             {in: "http://日本語。ｊｐ/ü?ü#ü", location: "http://xn--wgv71a119e.jp/%C3%BC?%C3%BC#%C3%BC"},
		"full-width digits":                   {in: "http://１９２.０.２.１/", location: "http://192.0.2.1/"},
		"hexadecimal IP address":              {in: "http://0x7f.1/", location: "http://127.0.0.1/"},
		"IPv6":                                {in: "http://[2001:DB8::0:1]:8080/", location: "http://[2001:db8::1]:8080/"},
		"dot segments in the path":            {in: "http://a.example/x/../%2e%2E/y", location: "http://a.example/y"},
		"percent signs are kept":              {in: "http://a.example/%zz%41", location: "http://a.example/%zz%41"},
		"backslashes":                         {in: `http://a.example\b`, location: "http://a.example/b"},
		"trailing space":                      {in: "http://a.example/b ", location: "http://a.example/b"},
		"longest":                             {in: long, location: long},
		"at sign in the path":                 {in: "https://a.example/@me", location: "https://a.example/@me"},
		"our host name on another port":       {in: "http://localhost:3000/", location: "http://localhost:3000/"},
		"one byte too long":                   {in: long + "a", refused: apierr.TooLong},
		"empty":                               {in: "", refused: apierr.InvalidFormat},
		"leading space":                       {in: " https://example.com", refused: apierr.InvalidFormat},
		"unsupported scheme":                  {in: "ftp://example.com", refused: apierr.InvalidFormat},
		"script":                              {in: "javascript:alert(1)", refused: apierr.InvalidFormat},
		"one slash":                           {in: "http:/example.com", refused: apierr.InvalidFormat},
		"three slashes":                       {in: "http:///x", refused: apierr.InvalidFormat},
		"backslash after the slashes":         {in: `http://\x`, refused: apierr.InvalidFormat},
		"no host":                             {in: "http://", refused: apierr.InvalidFormat},
		"query in place of the host":          {in: "http://?x", refused: apierr.InvalidFormat},
		"only a port":                         {in: "http://:80/", refused: apierr.InvalidFormat},
		"port above 65535":                    {in: "https://example.com:99999/", refused: apierr.InvalidFormat},
		"user info":                           {in: "https://bank.example@evil.example/", refused: apierr.NotAllowed},
		"password":                            {in: "https://a:b@evil.example/", refused: apierr.NotAllowed},
		"empty user info":                     {in: "https://@evil.example/", refused: apierr.NotAllowed},
		"tab, which the URL standard removes": {in: "https://exa\tmple.com/", refused: apierr.InvalidFormat},
		"line break":                          {in: "https://example.com/\r\nSet-Cookie: a=b", refused: apierr.InvalidFormat},
		"NUL":                                 {in: "https://example.com/\x00", refused: apierr.InvalidFormat},
		"C1 control":                          {in: "https://example.com/\u0085", refused: apierr.InvalidFormat},
		"space in the host":                   {in: "https://exa mple.com/", refused: apierr.InvalidFormat},
		"encoded slash in the host":           {in: "https://a%2fb/", refused: apierr.InvalidFormat},
		"invalid IP address":                  {in: "http://256.256.256.256/", refused: apierr.InvalidFormat},
		"our short host":                      {in: "http://localhost:8081/abc", refused: apierr.SelfReference},
		"our short host, mixed case, trailing dot": {in: "https://LRL.Example./abc", refused: apierr.SelfReference},
		"our short host, full width":               {in: "http://ｌｒｌ.example:80/abc", refused: apierr.SelfReference},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, problem := ParseURL(c.in, own)
			if c.refused != "" {
				if problem == nil || problem.Code != c.refused {
					t.Fatalf("ParseURL(%q) = %+v, %+v, want problem %s", c.in, got, problem, c.refused)
				}
				return
			}
			if problem != nil || got != (URL{c.in, c.location}) {
				t.Errorf("ParseURL(%q) = %+v, %+v, want %q", c.in, got, problem, c.location)
			}
		})
	}
}

func TestParseURLWritesAddressesAsBrowsersDo(t *testing.T) {
	texts := urlSeeds()
	in, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "-e",
		`const a=JSON.parse(require("fs").readFileSync(0,"utf8"));console.log(JSON.stringify(a.map(s=>{try{return new URL(s).href}catch{return ""}})))`)
	cmd.Stdin = strings.NewReader(string(in))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run node: %v", err)
	}
	var want []string
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		got, problem := ParseURL(text, nil)
		if problem == nil && got.Location != want[i] {
			t.Errorf("ParseURL(%q) = %q, want %q as Node returns it", text, got.Location, want[i])
		}
	}
}

func urlSeeds() []string {
	return []string{
		"https://example.com", "http://a.b/|{}^`\"<>", "http://a.b/?'\"<>`{}|^", "http://a.b/#\"<>`", "http://a.b/x\\y?\\", "http://ß.de/", "http://xn--a/",
		"http://a..b/", "http://a.b./", "http://a_b.de/", "http://*.de/", "http://1.2.3/", "http://0/", "http://foo.0x/", "http://[::1]/", "http://[::1%25eth0]/",
		"http://a<b/", "http://a^b/", "http://a%00b/", "http://a%7fb/", "http://ex%41mple.com", "http://a\u00adb.com/", "http://a\u200db.com/", "http://☃.net/☃?☃#☃",
		"http://a.b/%ff%", "http://a.b:0/", "http://a.b:00080/", "http://a.b:/", "http://a.b//c//..//", "http://a.b/;=,!$&'()*+", "http://faß.ExAmPlE/", "http://0x7f000001/", "http://017700000001/",
	}
}

func FuzzParseURL(f *testing.F) {
	for _, s := range urlSeeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, problem := ParseURL(text, own)
		if problem != nil {
			if problem.Code == "" || problem.Message == "" {
				t.Fatalf("ParseURL(%q) returned a problem without a code or message, want both", text)
			}
			return
		}
		if u.Given != text {
			t.Fatalf("ParseURL(%q).Given = %q, want the input", text, u.Given)
		}
		if !strings.HasPrefix(u.Location, "http://") && !strings.HasPrefix(u.Location, "https://") || strings.ContainsAny(u.Location, " \r\n\t\x00") {
			t.Fatalf("ParseURL(%q).Location = %q, want an http or https URL without spaces", text, u.Location)
		}
		again, problem := ParseURL(u.Location, own)
		// The IDNA library encodes names of thousands of characters in Punycode but cannot decode
		// them. Such names are valid under the URL standard but cannot exist in DNS.
		_, host, _ := strings.Cut(u.Location, "://")
		host, _, _ = strings.Cut(host, "/")
		if len(host) <= 260 && len(u.Location) <= maxURL && (problem != nil || again.Location != u.Location) {
			t.Fatalf("ParseURL(%q), the location of %q, = %q, %v; want no change", u.Location, text, again.Location, problem)
		}
	})
}

func TestParseSlug(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in      string
		custom  bool
		refused string
	}{
		"letters":                                {in: "Spring-Sale_2.0"},
		"one character":                          {in: "a"},
		"100 characters":                         {in: strings.Repeat("a", 100)},
		"101 characters":                         {in: strings.Repeat("a", 101), refused: apierr.TooLong},
		"empty":                                  {in: "", refused: apierr.InvalidFormat},
		"leading dash":                           {in: "-a", refused: apierr.InvalidFormat},
		"leading dot":                            {in: ".a", refused: apierr.InvalidFormat},
		"slash":                                  {in: "a/b", refused: apierr.InvalidFormat},
		"trailing plus, reserved for previews":   {in: "a+", refused: apierr.InvalidFormat},
		"space":                                  {in: "a b", refused: apierr.InvalidFormat},
		"umlaut":                                 {in: "ä", refused: apierr.InvalidFormat},
		"trailing line feed":                     {in: "a\n", refused: apierr.InvalidFormat},
		"reserved":                               {in: "API", refused: apierr.Reserved},
		"reserved, with a dot":                   {in: "Robots.TXT", refused: apierr.Reserved},
		"slug reserved only on the default host": {in: "api", custom: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, problem := ParseSlug(c.in, !c.custom)
			if c.refused != "" {
				if problem == nil || problem.Code != c.refused {
					t.Fatalf("ParseSlug(%q) = %v, %+v, want problem %s", c.in, got, problem, c.refused)
				}
				return
			}
			if problem != nil || string(got) != c.in || got.Folded() != strings.ToLower(c.in) {
				t.Errorf("ParseSlug(%q) = %v (folded %s), %+v; want the slug unchanged", c.in, got, got.Folded(), problem)
			}
		})
	}
}

func FuzzLookupSlug(f *testing.F) {
	for _, s := range []string{"abc", "A.b-c_9", "-a", "", "a+", "ä", strings.Repeat("z", 101)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		slug, problem := ParseSlug(text, false)
		folded, ok := LookupSlug([]byte(text))
		if ok != (problem == nil) || ok && folded != slug.Folded() {
			t.Fatalf("ParseSlug(%q) = %v, %v, but LookupSlug = %q, %v; want them to agree", text, slug, problem, folded, ok)
		}
	})
}

func TestExpiryIsOverAtItsMillisecond(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_790_000_000_000)
	for name, c := range map[string]struct {
		e    Moment
		now  time.Time
		want Status
	}{
		"never":               {Moment{}, at, Active},
		"before":              {At(at.UnixMilli()), at.Add(-time.Nanosecond), Active},
		"at":                  {At(at.UnixMilli()), at, Expired},
		"after":               {At(at.UnixMilli()), at.Add(time.Hour), Expired},
		"zero, which is 1970": {At(0), at, Expired},
		"far future":          {At(8_640_000_000_000_000), at, Active},
	} {
		l := Link{Expiry: c.e}
		if got := l.Status(c.now); got != c.want {
			t.Errorf("%s: Status = %s, want %s", name, got, c.want)
		}
	}
}

func TestApplyChangesOnlyWhatThePatchNames(t *testing.T) {
	t.Parallel()
	title := "og"
	before := Link{Title: "old", Destination: URL{"https://a.example", "https://a.example/"}, OpenGraph: OpenGraph{Title: &title}, Expiry: At(1), Rev: 3}
	now := time.UnixMilli(99)
	l := Patch{func(l *Link) { l.Title, l.OpenGraph.Title = "", nil }, func(l *Link) { l.Expiry = Moment{} }}.apply(before, now)
	want := &Link{Destination: before.Destination, Rev: 4, UpdatedAt: now}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Errorf("link after its fields were cleared (-want +got):\n%s", diff)
	}
}

func TestReferrerHost(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://News.Example/a?b": "news.example", "http://a.example:8080/": "a.example", "": "", "android-app://com.x/": "", "https:///x": "",
		"http://localhost:8081/abc": "", "http://[::1]/": "", "https://user@a.example/": "", "https://a.example": "a.example", "https://<script>/": "",
	} {
		if got := ReferrerHost(in, own); got != want {
			t.Errorf("ReferrerHost(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzParseHost(f *testing.F) {
	for _, s := range []string{"a.example", "A.Example:8080", "[::1]:80", "[::1]", ":", "", "a.example."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h := ParseHost(s)
		if h.Name != strings.ToLower(h.Name) {
			t.Fatalf("ParseHost(%q).Name = %q, want lower case", s, h.Name)
		}
	})
}
