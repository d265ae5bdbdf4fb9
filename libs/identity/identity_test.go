package identity_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/libs/identity"
)

func TestNewKeyParsesAndShowsItsParts(t *testing.T) {
	t.Parallel()
	k := identity.NewKey(rand.Reader)
	if !regexp.MustCompile(`^lr_live_[0-9A-Za-z]{38}$`).MatchString(k.Secret()) {
		t.Errorf("new key = %q, want lr_live_ and 38 characters", k.Secret())
	}
	got, err := identity.ParseKey(k.Secret(), identity.KeyPrefix, identity.SessionPrefix)
	if err != nil || got.Hash() != k.Hash() {
		t.Errorf("ParseKey for a new key = %v, %v, want the same key", got, err)
	}
	if s := fmt.Sprintf("%v %+v %#v %s", k, k, k, k); strings.Contains(s, k.Secret()) {
		t.Errorf("formatting a key shows its secret: %s", s)
	}
	if len(k.Prefix()) != 12 || len(k.Last4()) != 4 || !strings.HasSuffix(k.Secret(), k.Last4()) {
		t.Errorf("Prefix = %q, Last4 = %q, want the first 12 and the last 4 characters of the key", k.Prefix(), k.Last4())
	}
}

func TestParseKeyRefuses(t *testing.T) {
	t.Parallel()
	k := identity.NewKey(bytes.NewReader(make([]byte, 4096)))
	good := k.Secret()
	flip := func(i int) string {
		b := []byte(good)
		b[i] = map[bool]byte{true: 'x', false: 'y'}[b[i] != 'x']
		return string(b)
	}
	for name, s := range map[string]string{
		"empty string":       "",
		"different prefix":   "xx" + good[2:],
		"changed character":  flip(12),
		"changed checksum":   flip(len(good) - 1),
		"missing character":  good[:len(good)-1],
		"added character":    good + "0",
		"invalid character":  good[:20] + "-" + good[21:],
		"Unicode look-alike": good[:20] + "а" + good[22:],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := identity.ParseKey(s, identity.KeyPrefix, identity.SessionPrefix); err == nil {
				t.Errorf("ParseKey(%q) succeeded, want an error", s)
			}
		})
	}
}

func TestPlansAreOrderedAndNamed(t *testing.T) {
	t.Parallel()
	for i, p := range identity.Plans() {
		got, err := identity.ParsePlan(p.String())
		if err != nil || got != p || int(p) != i {
			t.Errorf("ParsePlan(%q) = %v, %v, want the same plan", p.String(), got, err)
		}
	}
	if _, err := identity.ParsePlan("Creator"); err == nil {
		t.Error("ParsePlan(Creator) succeeded, want an error because only lower case is valid")
	}
}

func TestDerivedIDsRepeatAndRandomOnesDoNot(t *testing.T) {
	t.Parallel()
	if a, b := identity.IDFrom("lnk", "s"), identity.IDFrom("lnk", "s"); a != b {
		t.Errorf("IDFrom returned %s and %s for the same seed, want identical IDs", a, b)
	}
	if identity.IDFrom("lnk", "s") == identity.IDFrom("lnk", "t") || repeats(func() string { return identity.NewID("lnk") }) {
		t.Error("IDFrom or NewID returned the same id twice, want different ids")
	}
	slug := identity.NewSlug(7)
	if !regexp.MustCompile(`^[2-9a-hjkmnp-z]{7}$`).MatchString(slug) || !repeats(func() string { return identity.SlugFrom("a", 7) }) {
		t.Errorf("slug = %q, want 7 characters without look-alikes", slug)
	}
}

func repeats(draw func() string) bool {
	first := draw()
	return draw() == first
}

// Documents store these numbers. New entries must be added at the end, and numbers must never be
// reused.
func TestThePermissionsAndPlansKeepTheirNumbers(t *testing.T) {
	t.Parallel()
	want := []string{
		"links:read", "links:write", "videos:read", "videos:write", "domains:read", "domains:write", "keys:read", "keys:write",
		"events:read", "webhooks:read", "webhooks:write", "members:read", "members:write", "account:write",
	}
	for i, name := range want {
		if got := identity.ScopeSet(1 << i).String(); got != name {
			t.Errorf("name of bit %d = %q, want %q", i, got, name)
		}
	}
	if !slices.Equal(identity.AllScopes.Names(), want) || !slices.Equal(identity.DefaultScopes.Names(), want[:8]) {
		t.Errorf("AllScopes = %v, DefaultScopes = %v, want all and the first eight", identity.AllScopes, identity.DefaultScopes)
	}
	if identity.MembersWrite != 4096 || identity.WebhooksRead != 512 || identity.KeysWrite != 128 || identity.LinksRead != 1 {
		t.Error("the number of a scope has changed, want the old number because documents contain it")
	}
	for i, name := range []string{"free", "creator", "business", "enterprise"} {
		if p, err := identity.ParsePlan(name); err != nil || int(p) != i || p.String() != name {
			t.Errorf("number of plan %s = %d, %v; want %d", name, p, err, i)
		}
	}
}

func TestScopeSets(t *testing.T) {
	t.Parallel()
	set := identity.LinksRead | identity.LinksWrite
	if !set.Has(identity.LinksRead) || !set.Has(set) || !set.Has(0) || set.Has(identity.KeysRead) || set.Has(set|identity.KeysRead) {
		t.Error("Has returned a wrong result, want true for every contained set and false for every other set")
	}
	if got := identity.ParseScopes([]string{"links:write", "links:all", "", "links:read", "links:read"}); got != set {
		t.Errorf("ParseScopes = %v, want %v", got, set)
	}
	if got := (identity.ScopeSet(1 << 31)).Names(); len(got) != 0 {
		t.Errorf("Names for an unknown scope = %v, want none", got)
	}
}

func FuzzParseKey(f *testing.F) {
	k := identity.NewKey(rand.Reader)
	f.Add(k.Secret())
	f.Add("lr_live_")
	f.Fuzz(func(t *testing.T, s string) {
		if k, err := identity.ParseKey(s, identity.KeyPrefix, identity.SessionPrefix); err == nil && k.Secret() != s {
			t.Errorf("Secret after ParseKey(%q) = %q, want the same text", s, k.Secret())
		}
	})
}

func BenchmarkParseKeyAndHash(b *testing.B) {
	k := identity.NewKey(rand.Reader)
	for b.Loop() {
		p, _ := identity.ParseKey(k.Secret(), identity.KeyPrefix, identity.SessionPrefix)
		_ = p.Hash()
	}
}
