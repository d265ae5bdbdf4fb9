package seal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"slices"
	"testing"

	"github.com/linkreel/linkreel/libs/seal"
)

const one, two = "the first key of 32 characters or more", "the second key of 32 characters or more"

func keys(t *testing.T, purpose, text string) *seal.Keys {
	t.Helper()
	k, err := seal.New(purpose, text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeysCanBeRotated(t *testing.T) {
	t.Parallel()
	plain := []byte("private")
	old := keys(t, "p", one).Seal("go.example.com", plain)
	if bytes.Contains(old, plain) {
		t.Fatal("the sealed value contains the plain text")
	}
	both := keys(t, "p", two+", "+one)
	if got, err := both.Open("go.example.com", old); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("after the new key was put in front: %q, %v", got, err)
	}
	if seal.IDOf(old) == both.ID() {
		t.Error("a value that the old key sealed has the new key's id")
	}
	fresh := both.Seal("go.example.com", plain)
	if got, err := keys(t, "p", two).Open("go.example.com", fresh); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("after the old key was dropped: %q, %v", got, err)
	}
	if _, err := keys(t, "p", two).Open("go.example.com", old); !errors.Is(err, seal.ErrKey) || keys(t, "p", two).Has(old) {
		t.Errorf("without its key: %v", err)
	}
}

func TestWhatIsSealedOpensWhereItBelongsAlone(t *testing.T) {
	t.Parallel()
	k := keys(t, "p", one)
	sealed := k.Seal("a", []byte("secret"))
	if again := k.Seal("a", []byte("secret")); bytes.Equal(again, sealed) {
		t.Error("sealing the same text twice gives the same result")
	}
	if _, err := k.Open("b", sealed); err == nil || errors.Is(err, seal.ErrKey) {
		t.Errorf("under another name: %v", err)
	}
	if _, err := keys(t, "q", one).Open("a", sealed); !errors.Is(err, seal.ErrKey) {
		t.Errorf("for another purpose: %v", err)
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, err := k.Open("a", changed); err == nil {
			t.Errorf("opens with byte %d changed", i)
		}
		if _, err := k.Open("a", sealed[:i]); err == nil {
			t.Errorf("opens when cut to %d bytes", i)
		}
	}
	for _, bad := range []string{"", "short", one + ","} {
		if _, err := seal.New("p", bad); err == nil {
			t.Errorf("key %q is accepted", bad)
		}
	}
}

func TestTheFormatStays(t *testing.T) {
	t.Parallel()
	sealed, err := base64.StdEncoding.DecodeString("MjP+2RAUh8MTETM2o5NuT1tCi9becANgkOwYcZpc4R2qt500jr5IYZJrNnOQKQ==")
	if err != nil {
		t.Fatal(err)
	}
	both := keys(t, "linkreel webhook secret 1", two+","+one)
	if got, err := both.Open("whk_1", sealed); err != nil || string(got) != "whsec_c2VjcmV0" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := keys(t, "linkreel webhook secret 1", two).Open("whk_1", sealed); !errors.Is(err, seal.ErrKey) {
		t.Errorf("without its key: %v", err)
	}
}

func TestOneKey(t *testing.T) {
	t.Parallel()
	derive := func(secret, salt, purpose string) *seal.Key {
		k, err := seal.Derive(secret, []byte(salt), purpose)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	sealed := derive("s", "salt", "p").Seal("a", []byte("plain"))
	if got, err := derive("s", "salt", "p").Open("a", sealed); err != nil || string(got) != "plain" {
		t.Errorf("%q, %v", got, err)
	}
	for what, k := range map[string]*seal.Key{"secret": derive("t", "salt", "p"), "salt": derive("s", "pepper", "p"), "purpose": derive("s", "salt", "q")} {
		if _, err := k.Open("a", sealed); err == nil {
			t.Errorf("opens with another %s", what)
		}
	}
	// Keys seal as a single key does, and put its id in front.
	k := keys(t, "p", one)
	if got, err := derive(one, "", "p").Open("a", k.Seal("a", []byte("plain"))[4:]); err != nil || string(got) != "plain" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestOlderKeysHaveNames(t *testing.T) {
	t.Parallel()
	both := keys(t, "p", two+","+one)
	if got, want := both.OlderIDs(), []string{keys(t, "p", one).ID()}; !slices.Equal(got, want) {
		t.Errorf("older keys %v, want %v", got, want)
	}
	for _, same := range []string{one, one + "," + one} {
		if got := keys(t, "p", same).OlderIDs(); len(got) != 0 {
			t.Errorf("a single key has older ones: %v", got)
		}
	}
}
