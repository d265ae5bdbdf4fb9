package video

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/label"
)

// Maximum lengths of text fields, in Unicode code points.
const (
	MaxTitle       = 500
	MaxDescription = 2000
	MaxPassword    = 256
)

// maxTime is the latest time that JavaScript can represent, in ms. Most callers could not display
// anything later.
const maxTime = 8_640_000_000_000_000

// Draft is a caller's request to create a video. Absent fields are nil.
type Draft struct {
	Title      *string
	Tags       []string
	ExternalID *string
	Recording  bool // see [Upload.Recording]
	Rule
}

// Checked is a validated draft.
type Checked struct {
	Title      string
	Tags       []string
	ExternalID string
	Recording  bool
	Access
}

// Check validates a draft and reports every broken rule at once.
func (d Draft) Check(now time.Time) (Checked, []apierr.Detail) {
	var bad []apierr.Detail
	c := Checked{Recording: d.Recording}
	if d.Title != nil {
		c.Title = *d.Title
		bad = append(bad, checkText("title", c.Title, MaxTitle)...)
	}
	tags, details := label.Tags("tags", d.Tags)
	c.Tags, bad = tags, append(bad, details...)
	if d.ExternalID != nil {
		c.ExternalID = *d.ExternalID
		bad = append(bad, label.ExternalID("externalId", c.ExternalID)...)
	}
	access, details := d.Rule.Check(nil, now)
	c.Access, bad = access, append(bad, details...)
	if len(bad) > 0 {
		return Checked{}, bad
	}
	return c, nil
}

// Identity is the ID, account, slug and upload object of a new video.
type Identity struct {
	ID           ID
	AccountID    string
	Slug         Slug
	UploadObject string
}

// New returns a video that awaits its file.
func New(id Identity, c Checked, passwordHash string, now time.Time) *Video {
	return &Video{
		ID: id.ID, AccountID: id.AccountID, Slug: id.Slug,
		Title: c.Title, Tags: c.Tags, ExternalID: c.ExternalID, Privacy: c.Privacy, PasswordHash: passwordHash, ExpiresAt: c.ExpiresAt, Access: 1,
		Status: Uploading, Upload: Upload{Object: id.UploadObject},
		CreatedAt: now, UpdatedAt: now,
	}
}

// Change is one field in a PATCH: absent, set to a new value, or cleared.
type Change struct {
	Set   bool
	Value string // "" when cleared
}

// Patch is a change to the fields that an owner may edit.
type Patch struct {
	Title       Change
	Description Change
	Tags        *[]string // nil: absent; empty: removes all tags
	ExternalID  Change
}

// Check reports every broken rule in the patch. It returns the patch with normalised tags.
func (p Patch) Check() (Patch, []apierr.Detail) {
	bad := append(checkText("title", p.Title.Value, MaxTitle), checkText("description", p.Description.Value, MaxDescription)...)
	if p.Tags != nil {
		tags, details := label.Tags("tags", *p.Tags)
		p.Tags, bad = &tags, append(bad, details...)
	}
	if p.ExternalID.Value != "" {
		bad = append(bad, label.ExternalID("externalId", p.ExternalID.Value)...)
	}
	return p, bad
}

// Apply applies the patch. If the patch does not change anything, Apply returns false and leaves
// UpdatedAt as it is.
func (p Patch) Apply(v *Video, now time.Time) bool {
	changed := p.Title.to(&v.Title)
	changed = p.Description.to(&v.Description) || changed
	changed = p.ExternalID.to(&v.ExternalID) || changed
	if p.Tags != nil && !slices.Equal(*p.Tags, v.Tags) {
		v.Tags, changed = *p.Tags, true
	}
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

// checkText validates text that is stored unchanged. It rejects only NUL and invalid Unicode.
func checkText(field, s string, limit int) []apierr.Detail {
	if strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
		return []apierr.Detail{{Field: field, Code: apierr.InvalidValue, Message: "The text contains a NUL character or is not valid Unicode."}}
	}
	if utf8.RuneCountInString(s) > limit {
		return []apierr.Detail{{Field: field, Code: apierr.TooLong, Message: fmt.Sprintf("Use at most %d characters.", limit), Max: int64(limit)}}
	}
	return nil
}
