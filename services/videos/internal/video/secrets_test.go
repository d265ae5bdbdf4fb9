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
		t.Fatalf("Verify of a new token returned %v and error %v, want a grant that allows watching", g, err)
	}
	if g.Allows(v, start.Add(time.Hour)) {
		t.Error("Allows returned true at the token's expiry, want false")
	}
	other := *v
	other.ID = "vid_2"
	moved := *v
	moved.Access++
	gone := *v
	gone.ExpiresAt = start
	for name, v := range map[string]*video.Video{"another video": &other, "changed access rule": &moved, "expired video": &gone} {
		if g.Allows(v, start) {
			t.Errorf("Allows returned true for %s, want false", name)
		}
	}
	raw, _ := base64.RawURLEncoding.DecodeString(token)
	for i := range raw {
		raw[i] ^= 1
		if _, err := keys.Verify(base64.RawURLEncoding.EncodeToString(raw)); err == nil {
			t.Errorf("Verify accepted a token with byte %d changed, want an error", i)
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
		t.Errorf("Verify of a token signed with the previous secret returned %v, want nil", err)
	}
	if _, err := only.Verify(token); err == nil {
		t.Error("Verify accepted a token signed with a removed secret, want an error")
	}
	if _, err := video.NewKeyring([]byte("short")); err == nil {
		t.Error("NewKeyring accepted a short secret, want an error")
	}
}

func TestAViewersGrantEndsWithTheVideoAndTheOwnersDoesNot(t *testing.T) {
	t.Parallel()
	v := uploading()
	v.ExpiresAt = start.Add(time.Minute)
	if g := video.GrantFor(v, video.Watch, time.Hour, start); !g.Expires.Equal(v.ExpiresAt) {
		t.Errorf("the viewer's grant expires at %s, want %s", g.Expires, v.ExpiresAt)
	}
	own := video.GrantFor(v, video.Own, time.Hour, start)
	v.Access++
	if late := start.Add(59 * time.Minute); !own.Allows(v, late) {
		t.Error("the owner's grant ended when the video expired or its access changed, want it to stay valid")
	}
	if own.Allows(v, start.Add(time.Hour)) {
		t.Error("the owner's grant allows watching at its own expiry, want it expired")
	}
}

func TestACursorIsBoundToItsAccount(t *testing.T) {
	t.Parallel()
	keys, _ := video.NewKeyring(bytes.Repeat([]byte{1}, 32))
	p := video.Position{Created: start, ID: "vid_1"}
	cursor := keys.Cursor("acc_a", p)
	if got, ok := keys.Position("acc_a", cursor); !ok || !got.Created.Equal(p.Created) || got.ID != p.ID {
		t.Errorf("Position = %v, %v; want %v, true", got, ok, p)
	}
	if _, ok := keys.Position("acc_b", cursor); ok {
		t.Error("Position accepted a cursor from another account, want it rejected")
	}
	for _, bad := range []string{"", "1", "!", cursor[1:], cursor + "A"} {
		if _, ok := keys.Position("acc_a", bad); ok {
			t.Errorf("Position accepted the invalid cursor %q, want it rejected", bad)
		}
	}
}

func TestPseudonymsChangeDailyAndPerViewer(t *testing.T) {
	t.Parallel()
	keys, _ := video.NewKeyring(bytes.Repeat([]byte{1}, 32))
	a := keys.Pseudonym(start, "10.0.0.1", "agent")
	if a != keys.Pseudonym(start.Add(time.Hour), "10.0.0.1", "agent") {
		t.Error("the pseudonym changed within a day, want it unchanged")
	}
	if a == keys.Pseudonym(start.Add(24*time.Hour), "10.0.0.1", "agent") || a == keys.Pseudonym(start, "10.0.0.1a", "gent") {
		t.Error("pseudonyms for different days or viewers are the same, want different ones")
	}
}

func FuzzVerify(f *testing.F) {
	keys, _ := video.NewKeyring(bytes.Repeat([]byte{1}, 32))
	other, _ := video.NewKeyring(bytes.Repeat([]byte{2}, 32))
	f.Add(keys.Sign(video.GrantFor(uploading(), video.Own, time.Hour, start)))
	f.Fuzz(func(t *testing.T, token string) {
		if g, err := other.Verify(token); err == nil {
			t.Errorf("Verify(%q) with another secret returned %v, want an error", token, g)
		}
		_, _ = keys.Verify(token) // must not panic
	})
}
