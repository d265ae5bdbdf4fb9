package video

import (
	"slices"
	"strings"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"
)

// Name returns the track's name in a player's menu: the name of the language in that
// language, or the tag if there is no such name.
func (c Caption) Name() string {
	tag, err := language.Parse(c.Lang)
	if err != nil {
		return c.Lang
	}
	if name := display.Self.Name(tag); name != "" {
		return name
	}
	return c.Lang
}

// Caption looks up a caption track.
func (v *Video) Caption(lang string) (Caption, bool) {
	i := slices.IndexFunc(v.Captions, func(c Caption) bool { return c.Lang == lang })
	if i < 0 {
		return Caption{}, false
	}
	return v.Captions[i], true
}

// MaxCaptions limits the tracks on one video.
const MaxCaptions = 50

// SetCaption adds a track or replaces the track in the same language. It returns false if the
// video already has MaxCaptions tracks.
func (v *Video) SetCaption(c Caption, now time.Time) bool {
	captions := slices.Clone(v.Captions)
	if i := slices.IndexFunc(captions, func(o Caption) bool { return o.Lang == c.Lang }); i >= 0 {
		captions[i] = c
	} else if len(captions) >= MaxCaptions {
		return false
	} else {
		captions = append(captions, c)
	}
	slices.SortFunc(captions, func(a, b Caption) int { return strings.Compare(a.Lang, b.Lang) })
	v.Captions, v.UpdatedAt = captions, now
	return true
}

// RemoveCaption removes a track and reports whether it existed.
func (v *Video) RemoveCaption(lang string, now time.Time) bool {
	n := len(v.Captions)
	v.Captions = slices.DeleteFunc(slices.Clone(v.Captions), func(c Caption) bool { return c.Lang == lang })
	if len(v.Captions) == n {
		return false
	}
	v.UpdatedAt = now
	return true
}
