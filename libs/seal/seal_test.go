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
		t.Fatal("the sealed value contains the plain text, want it encrypted")
	}
	both := keys(t, "p", two+", "+one)
	if got, err := both.Open("go.example.com", old); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("Open after a new first key was added = %q, %v, want the plain text", got, err)
	}
	if seal.IDOf(old) == both.ID() {
		t.Error("IDOf a value sealed with the old key = the new key's id, want the old key's id")
	}
	fresh := both.Seal("go.example.com", plain)
	if got, err := keys(t, "p", two).Open("go.example.com", fresh); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("Open after the old key was removed = %q, %v, want the plain text", got, err)
	}
	if _, err := keys(t, "p", two).Open("go.example.com", old); !errors.Is(err, seal.ErrKey) || keys(t, "p", two).Has(old) {
		t.Errorf("Open without its key: got %v, want ErrKey", err)
	}
}

func TestWhatIsSealedOpensWhereItBelongsAlone(t *testing.T) {
	t.Parallel()
	k := keys(t, "p", one)
	sealed := k.Seal("a", []byte("secret"))
	if again := k.Seal("a", []byte("secret")); bytes.Equal(again, sealed) {
		t.Error("sealing the same text twice gives identical results, want different results")
	}
	if _, err := k.Open("b", sealed); err == nil || errors.Is(err, seal.ErrKey) {
		t.Errorf("Open under another name: got %v, want an error other than ErrKey", err)
	}
	if _, err := keys(t, "q", one).Open("a", sealed); !errors.Is(err, seal.ErrKey) {
		t.Errorf("Open for a different purpose: got %v, want ErrKey", err)
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, err := k.Open("a", changed); err == nil {
			t.Errorf("Open with byte %d changed succeeded, want an error", i)
		}
		if _, err := k.Open("a", sealed[:i]); err == nil {
			t.Errorf("Open on the first %d bytes succeeded, want an error", i)
		}
	}
	for _, bad := range []string{"", "short", one + ","} {
		if _, err := seal.New("p", bad); err == nil {
			t.Errorf("New(%q) succeeded, want an error", bad)
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
		t.Errorf("Open for a value in the current format = %q, %v, want the secret", got, err)
	}
	if _, err := keys(t, "linkreel webhook secret 1", two).Open("whk_1", sealed); !errors.Is(err, seal.ErrKey) {
		t.Errorf("Open without its key: got %v, want ErrKey", err)
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
		t.Errorf("Open = %q, %v, want the plain text", got, err)
	}
	for what, k := range map[string]*seal.Key{"secret": derive("t", "salt", "p"), "salt": derive("s", "pepper", "p"), "purpose": derive("s", "salt", "q")} {
		if _, err := k.Open("a", sealed); err == nil {
			t.Errorf("Open with a different %s succeeded, want an error", what)
		}
	}
	// Keys seals like a single key and prepends its id.
	k := keys(t, "p", one)
	if got, err := derive(one, "", "p").Open("a", k.Seal("a", []byte("plain"))[4:]); err != nil || string(got) != "plain" {
		t.Errorf("Open with the single key = %q, %v, want the plain text", got, err)
	}
}

func TestOlderKeysHaveNames(t *testing.T) {
	t.Parallel()
	both := keys(t, "p", two+","+one)
	if got, want := both.OlderIDs(), []string{keys(t, "p", one).ID()}; !slices.Equal(got, want) {
		t.Errorf("OlderIDs = %v, want %v", got, want)
	}
	for _, same := range []string{one, one + "," + one} {
		if got := keys(t, "p", same).OlderIDs(); len(got) != 0 {
			t.Errorf("OlderIDs for a single key = %v, want none", got)
		}
	}
}
