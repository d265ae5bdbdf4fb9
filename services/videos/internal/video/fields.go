package video

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/linkreel/linkreel/libs/apierr"
)

// Lengths of the fields that people write, in Unicode code points.
const (
	MaxTitle       = 500
	MaxDescription = 2000
	MaxPassword    = 256
	MaxLabel       = 100
)

// maxTime is the last instant JavaScript can name, in ms: a larger number could
// not be shown by most callers.
const maxTime = 8_640_000_000_000_000

// Draft is what a caller asks for when creating a video. A nil field was not
// given.
type Draft struct {
	Title     *string
	Privacy   *string
	Password  *string
	ExpiresAt *int64 // ms
}

// Checked is a draft that keeps every rule.
type Checked struct {
	Title     string
	Privacy   Privacy
	Password  string    // with Password only; to be hashed, never kept
	ExpiresAt time.Time // with Expiring only
}

// Check judges a draft and reports every broken rule at once. A password or an
// expiry that the privacy would ignore is refused, since its giver believes to
// be protected.
func (d Draft) Check(now time.Time) (Checked, []apierr.Detail) {
	var bad []apierr.Detail
	c := Checked{Privacy: Public}

	if d.Title != nil {
		c.Title = *d.Title
		bad = append(bad, checkText("title", c.Title, MaxTitle)...)
	}
	known := true
	if d.Privacy != nil {
		c.Privacy = Privacy(*d.Privacy)
		if known = isPrivacy(c.Privacy); !known {
			bad = append(bad, apierr.Detail{Field: "privacy", Code: apierr.InvalidValue, Message: "must be one of public, unlisted, password, expiring"})
		}
	}

	switch {
	case d.Password == nil && c.Privacy == Password:
		bad = append(bad, apierr.Detail{Field: "password", Code: apierr.Required, Message: "is required when privacy is password"})
	case d.Password != nil && known && c.Privacy != Password:
		bad = append(bad, apierr.Detail{Field: "password", Code: apierr.NotAllowed, Message: "protects nothing unless privacy is password"})
	case d.Password != nil && *d.Password == "":
		bad = append(bad, apierr.Detail{Field: "password", Code: apierr.TooShort, Message: "must not be empty", Min: 1})
	case d.Password != nil:
		c.Password = *d.Password
		bad = append(bad, checkText("password", c.Password, MaxPassword)...)
	}

	switch {
	case d.ExpiresAt == nil && c.Privacy == Expiring:
		bad = append(bad, apierr.Detail{Field: "expiresAt", Code: apierr.Required, Message: "is required when privacy is expiring"})
	case d.ExpiresAt != nil && known && c.Privacy != Expiring:
		bad = append(bad, apierr.Detail{Field: "expiresAt", Code: apierr.NotAllowed, Message: "ends nothing unless privacy is expiring"})
	case d.ExpiresAt != nil && (*d.ExpiresAt <= now.UnixMilli() || *d.ExpiresAt > maxTime):
		bad = append(bad, apierr.Detail{Field: "expiresAt", Code: apierr.OutOfRange, Message: "must be a time in the future, in milliseconds", Min: now.UnixMilli() + 1, Max: maxTime})
	case d.ExpiresAt != nil:
		c.ExpiresAt = time.UnixMilli(*d.ExpiresAt).UTC()
	}

	if len(bad) > 0 {
		return Checked{}, bad
	}
	return c, nil
}

// Identity is what a new video is called.
type Identity struct {
	ID           ID
	AccountID    string
	Slug         Slug
	UploadObject string
}

// New makes a video that waits for its file.
func New(id Identity, c Checked, passwordHash string, now time.Time) *Video {
	return &Video{
		ID: id.ID, AccountID: id.AccountID, Slug: id.Slug,
		Title: c.Title, Privacy: c.Privacy, PasswordHash: passwordHash, ExpiresAt: c.ExpiresAt, Access: 1,
		Status: Uploading, Upload: Upload{Object: id.UploadObject},
		CreatedAt: now, UpdatedAt: now,
	}
}

// Change is what a PATCH says about one field: nothing, a value, or that it is
// to be cleared.
type Change struct {
	Set   bool
	Value string // "" when cleared
}

// Patch changes what an owner may edit.
type Patch struct {
	Title       Change
	Description Change
}

// Check reports every broken rule of the patch.
func (p Patch) Check() []apierr.Detail {
	return append(checkText("title", p.Title.Value, MaxTitle), checkText("description", p.Description.Value, MaxDescription)...)
}

// Apply makes the changes. A patch that changes nothing leaves the video, its
// UpdatedAt too, as it is, and Apply reports false.
func (p Patch) Apply(v *Video, now time.Time) bool {
	changed := p.Title.to(&v.Title)
	changed = p.Description.to(&v.Description) || changed
	if changed {
		v.UpdatedAt = now
	}
	return changed
}

func (c Change) to(field *string) bool {
	if !c.Set || c.Value == *field {
		return false
	}
	*field = c.Value
	return true
}

func isPrivacy(p Privacy) bool {
	for _, known := range Privacies() {
		if p == known {
			return true
		}
	}
	return false
}

// checkText judges text that is kept to the letter: everything is allowed but
// NUL and what is not Unicode.
func checkText(field, s string, limit int) []apierr.Detail {
	if strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
		return []apierr.Detail{{Field: field, Code: apierr.InvalidValue, Message: "must be Unicode text without NUL"}}
	}
	if utf8.RuneCountInString(s) > limit {
		return []apierr.Detail{{Field: field, Code: apierr.TooLong, Message: "is too long", Max: int64(limit)}}
	}
	return nil
}
