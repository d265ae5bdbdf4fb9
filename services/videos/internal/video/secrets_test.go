package video_test

import (
	"bytes"
	"encoding/base64"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/videos/internal/video"
)

func TestGrantsAreBoundToVideoAccessAndTime(t *testing.T) {
	t.Parallel()
	keys, err := video.NewKeyring(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	v := uploading()
	token := keys.Sign(video.GrantFor(v, video.Watch, time.Hour, start))

	g, err := keys.Verify(token)
	if err != nil || !g.Allows(v, start) || g.Kind != video.Watch {
		t.Fatalf("a fresh token: %v, %v", g, err)
	}
	if g.Allows(v, start.Add(time.Hour)) {
		t.Error("valid after its time")
	}
	other := *v
	other.ID = "vid_2"
	moved := *v
	moved.Access++
	gone := *v
	gone.ExpiresAt = start
	for name, v := range map[string]*video.Video{"another video": &other, "changed access": &moved, "an expired video": &gone} {
		if g.Allows(v, start) {
			t.Errorf("allows %s", name)
		}
	}
	raw, _ := base64.RawURLEncoding.DecodeString(token)
	for i := range raw {
		raw[i] ^= 1
		if _, err := keys.Verify(base64.RawURLEncoding.EncodeToString(raw)); err == nil {
			t.Errorf("byte %d can be changed", i)
		}
		raw[i] ^= 1
	}
}

func TestSecretsCanBeReplaced(t *testing.T) {
	t.Parallel()
	a, b := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	old, _ := video.NewKeyring(a)
	both, _ := video.NewKeyring(b, a)
	only, _ := video.NewKeyring(b)
	token := old.Sign(video.GrantFor(uploading(), video.Own, time.Hour, start))
	if _, err := both.Verify(token); err != nil {
		t.Errorf("the former secret's token: %v", err)
	}
	if _, err := only.Verify(token); err == nil {
		t.Error("a token outlives its removed secret")
	}
	if _, err := video.NewKeyring([]byte("short")); err == nil {
		t.Error("a short secret was taken")
	}
}

func TestAViewersGrantEndsWithTheVideoAndTheOwnersDoesNot(t *testing.T) {
	t.Parallel()
	v := uploading()
	v.ExpiresAt = start.Add(time.Minute)
	if g := video.GrantFor(v, video.Watch, time.Hour, start); !g.Expires.Equal(v.ExpiresAt) {
		t.Errorf("expires %s, want %s", g.Expires, v.ExpiresAt)
	}
	own := video.GrantFor(v, video.Own, time.Hour, start)
	v.Access++
	if late := start.Add(59 * time.Minute); !own.Allows(v, late) {
		t.Error("the owner is shut out after expiry, or by a change of access")
	}
	if own.Allows(v, start.Add(time.Hour)) {
		t.Error("the owner's grant does not end")
	}
}

func TestACursorIsBoundToItsAccount(t *testing.T) {
	t.Parallel()
	keys, _ := video.NewKeyring(bytes.Repeat([]byte{1}, 32))
	p := video.Position{Created: start, ID: "vid_1"}
	cursor := keys.Cursor("acc_a", p)
	if got, ok := keys.Position("acc_a", cursor); !ok || !got.Created.Equal(p.Created) || got.ID != p.ID {
		t.Errorf("Position = %v, %v", got, ok)
	}
	if _, ok := keys.Position("acc_b", cursor); ok {
		t.Error("another account's cursor is accepted")
	}
	for _, bad := range []string{"", "1", "!", cursor[1:], cursor + "A"} {
		if _, ok := keys.Position("acc_a", bad); ok {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestPseudonymsChangeDailyAndPerViewer(t *testing.T) {
	t.Parallel()
	keys, _ := video.NewKeyring(bytes.Repeat([]byte{1}, 32))
	a := keys.Pseudonym(start, "10.0.0.1", "agent")
	if a != keys.Pseudonym(start.Add(time.Hour), "10.0.0.1", "agent") {
		t.Error("changes within a day")
	}
	if a == keys.Pseudonym(start.Add(24*time.Hour), "10.0.0.1", "agent") || a == keys.Pseudonym(start, "10.0.0.1a", "gent") {
		t.Error("can be linked")
	}
}

func FuzzVerify(f *testing.F) {
	keys, _ := video.NewKeyring(bytes.Repeat([]byte{1}, 32))
	other, _ := video.NewKeyring(bytes.Repeat([]byte{2}, 32))
	f.Add(keys.Sign(video.GrantFor(uploading(), video.Own, time.Hour, start)))
	f.Fuzz(func(t *testing.T, token string) {
		if g, err := other.Verify(token); err == nil {
			t.Errorf("Verify(%q) = %v with another secret", token, g)
		}
		_, _ = keys.Verify(token) // it must not panic
	})
}
