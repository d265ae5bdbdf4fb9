package video_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/services/videos/internal/video"
)

func ptr[T any](v T) *T { return &v }

func TestDraftRules(t *testing.T) {
	t.Parallel()
	later := start.Add(time.Hour).UnixMilli()
	for name, tc := range map[string]struct {
		draft video.Draft
		want  []string // field and code of each error
	}{
		"nothing":                             {video.Draft{}, nil},
		"title of 500 characters":             {video.Draft{Title: ptr(strings.Repeat("é", 500))}, nil},
		"title of 501 characters":             {video.Draft{Title: ptr(strings.Repeat("é", 501))}, []string{"title too_long"}},
		"title with NUL":                      {video.Draft{Title: ptr("a\x00b")}, []string{"title invalid_value"}},
		"unlisted":                            {video.Draft{Rule: video.Rule{Privacy: ptr("unlisted")}}, nil},
		"unknown privacy":                     {video.Draft{Rule: video.Rule{Privacy: ptr("Public"), Password: ptr("x"), ExpiresAt: &later}}, []string{"privacy invalid_value"}},
		"privacy password with a password":    {video.Draft{Rule: video.Rule{Privacy: ptr("password"), Password: ptr("s")}}, nil},
		"password of 256 emoji":               {video.Draft{Rule: video.Rule{Privacy: ptr("password"), Password: ptr(strings.Repeat("🔑", 256))}}, nil},
		"password of 257 characters":          {video.Draft{Rule: video.Rule{Privacy: ptr("password"), Password: ptr(strings.Repeat("a", 257))}}, []string{"password too_long"}},
		"privacy password without a password": {video.Draft{Rule: video.Rule{Privacy: ptr("password")}}, []string{"password required"}},
		"empty password":                      {video.Draft{Rule: video.Rule{Privacy: ptr("password"), Password: ptr("")}}, []string{"password too_short"}},
		"password without privacy password":   {video.Draft{Rule: video.Rule{Password: ptr("s")}}, []string{"password not_allowed"}},
		"privacy expiring with a time":        {video.Draft{Rule: video.Rule{Privacy: ptr("expiring"), ExpiresAt: &later}}, nil},
		"privacy expiring without a time":     {video.Draft{Rule: video.Rule{Privacy: ptr("expiring")}}, []string{"expiresAt required"}},
		"expiry now":                          {video.Draft{Rule: video.Rule{Privacy: ptr("expiring"), ExpiresAt: ptr(start.UnixMilli())}}, []string{"expiresAt out_of_range"}},
		"expiry after the last valid time":    {video.Draft{Rule: video.Rule{Privacy: ptr("expiring"), ExpiresAt: ptr(int64(8_640_000_000_000_001))}}, []string{"expiresAt out_of_range"}},
		"expiry without privacy expiring":     {video.Draft{Rule: video.Rule{Privacy: ptr("public"), ExpiresAt: &later}}, []string{"expiresAt not_allowed"}},
		"several errors at once": {
			video.Draft{Title: ptr(strings.Repeat("x", 501)), Rule: video.Rule{Privacy: ptr("password"), ExpiresAt: &later}},
			[]string{"title too_long", "password required", "expiresAt not_allowed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, bad := tc.draft.Check(start)
			var got []string
			for _, d := range bad {
				got = append(got, d.Field+" "+d.Code)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("broken rules (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPatchKeepsClearsAndSets(t *testing.T) {
	t.Parallel()
	later := start.Add(time.Hour)
	v := uploading()
	v.Title, v.Description = "a", "b"

	if (video.Patch{Title: video.Change{Set: true, Value: "a"}}).Apply(v, later) || !v.UpdatedAt.Equal(start) {
		t.Errorf("Apply reported a change or changed UpdatedAt for a patch that does not change anything: %+v", v)
	}
	if !(video.Patch{Description: video.Change{Set: true}}).Apply(v, later) || v.Title != "a" || v.Description != "" || !v.UpdatedAt.Equal(later) {
		t.Errorf("after clearing the description, the video has title %q, description %q and UpdatedAt %s; want \"a\", \"\" and %s", v.Title, v.Description, v.UpdatedAt, later)
	}
	_, bad := video.Patch{
		Title:       video.Change{Set: true, Value: strings.Repeat("x", 501)},
		Description: video.Change{Set: true, Value: strings.Repeat("x", 2001)},
	}.Check()
	if len(bad) != 2 {
		t.Errorf("Check reported %d broken rules, want 2", len(bad))
	}
}

func TestExpiryIsExclusive(t *testing.T) {
	t.Parallel()
	v := uploading()
	v.ExpiresAt = start
	if !v.Expired(start) || v.Expired(start.Add(-time.Millisecond)) {
		t.Error("Expired is false at ExpiresAt or true before it, want true from ExpiresAt on")
	}
}

func TestCaptionsAreOnePerLanguage(t *testing.T) {
	t.Parallel()
	v := uploading()
	for _, c := range []video.Caption{{Lang: "en", Label: "1"}, {Lang: "de"}, {Lang: "en", Label: "2"}} {
		if !v.SetCaption(c, start) {
			t.Fatal("refused")
		}
	}
	if diff := cmp.Diff([]video.Caption{{Lang: "de"}, {Lang: "en", Label: "2"}}, v.Captions); diff != "" {
		t.Error(diff)
	}
	if !v.RemoveCaption("de", start) || v.RemoveCaption("de", start) || len(v.Captions) != 1 {
		t.Errorf("after removing the track twice, the captions are %v, want one track and success only the first time", v.Captions)
	}
}
