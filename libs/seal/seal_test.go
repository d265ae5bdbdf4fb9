package seal_test

import (
	"bytes"
	"errors"
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
		t.Fatal("it is there in the clear")
	}
	both := keys(t, "p", two+", "+one)
	if got, err := both.Open("go.example.com", old); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("after the new key was put in front: %q, %v", got, err)
	}
	if seal.IDOf(old) == both.ID() {
		t.Error("what the old key seals looks as if the new one did")
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
		t.Error("the same text is sealed alike twice")
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
