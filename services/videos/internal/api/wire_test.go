package api

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// TestWhatShowsMovesUpdatedAt calls every method that changes a video. If a visible field changes,
// UpdatedAt must change too because that is what makes the store write an event and increment the
// revision.
func TestWhatShowsMovesUpdatedAt(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	fresh := func() *video.Video {
		return video.New(video.Identity{ID: "vid_1", AccountID: "acc_a", Slug: "slug", UploadObject: "uploads/vid_1"},
			video.Checked{Access: video.Access{Privacy: video.Public}}, "", now)
	}
	v := fresh()
	title, tags := video.Change{Set: true, Value: "New"}, []string{"a"}
	media := func(version int) video.Media { return video.Media{Version: version, Duration: float64(version)} }
	type step struct {
		method string
		silent bool // no visible field changes
		change func(now time.Time) error
	}
	ok := func(bool) error { return nil }
	var called []string
	for _, s := range []step{
		{"Apply", false, func(now time.Time) error { return ok(video.Patch{Title: title}.Apply(v, now)) }},
		{"Apply", false, func(now time.Time) error { return ok(video.Patch{Tags: &tags}.Apply(v, now)) }},
		{"Apply", true, func(now time.Time) error { return ok(video.Patch{Tags: &tags}.Apply(v, now)) }},
		{"SetAccess", false, func(now time.Time) error { return ok(v.SetAccess(video.Access{Privacy: video.Unlisted}, "", now)) }},
		{"Receive", true, func(now time.Time) error { return ok(v.Receive(7, video.Plan{}, now)) }},
		{"FileArrived", false, func(now time.Time) error { // the file is empty, so the video fails
			return v.FileArrived(video.Source{Generation: 1}, video.UploadLimits{}, now)
		}},
		{"FileArrived", true, func(now time.Time) error { // the video fails again with the same message
			return v.FileArrived(video.Source{Generation: 2}, video.UploadLimits{}, now)
		}},
		{"FileArrived", false, func(now time.Time) error {
			return v.FileArrived(video.Source{Generation: 3, Size: 5, JobID: "job"}, video.UploadLimits{}, now)
		}},
		{"ReportProgress", true, func(time.Time) error { v.ReportProgress(50); return nil }},
		{"Publish", false, func(now time.Time) error { return v.Publish("job", media(1), now) }},
		{"Publish", false, func(now time.Time) error { return v.Publish("job", media(2), now) }},
		{"SetCaption", false, func(now time.Time) error { return ok(v.SetCaption(video.Caption{Lang: "en", At: now}, now)) }},
		{"RemoveCaption", false, func(now time.Time) error { return ok(v.RemoveCaption("en", now)) }},
		{"AskStill", false, func(now time.Time) error { v.AskStill(1, "still", now); return nil }},
		{"FailStill", false, func(now time.Time) error { return v.FailStill("still", now) }},
		{"AskStill", false, func(now time.Time) error { v.AskStill(1, "still", now); return nil }},
		{"TakeStill", true, func(now time.Time) error { return v.TakeStill("still", "object", now) }},
		{"DropStill", false, func(now time.Time) error { return ok(v.DropStill(now)) }},
		{"Schedule", true, func(now time.Time) error { v.Schedule(video.Plan{}, now); return nil }},
		{"Expire", false, func(now time.Time) error { v = fresh(); return v.Expire(video.UploadLimits{}, now) }},
		{"Outgrown", false, func(now time.Time) error {
			v = fresh()
			v.StorageLimit, v.Upload.Received = 5, 6
			return ok(v.Outgrown(now))
		}},
		{"Retire", true, func(now time.Time) error { v.Upload.ResumableURL = "session"; return v.Retire(now) }},
		{"Forgotten", true, func(now time.Time) error {
			v.Upload.ResumableURL = "session"
			return ok(v.Forgotten(now.Add(2 * time.Hour)))
		}},
		{"Fail", false, func(now time.Time) error {
			v = fresh()
			v.Status, v.Source.JobID = video.Processing, "job"
			return v.Fail("job", video.Failure{Code: video.Internal, Message: "No."}, now)
		}},
	} {
		before, since := shownOf(t, v), v.UpdatedAt
		now = now.Add(time.Minute)
		if err := s.change(now); err != nil {
			t.Fatalf("%s returned %v, want nil", s.method, err)
		}
		called = append(called, s.method)
		if same := shownOf(t, v) == before; same != s.silent {
			t.Errorf("visible fields unchanged after %s = %v, want %v:\n%s", s.method, same, s.silent, shownOf(t, v))
		} else if !same && (v.UpdatedAt.Equal(since) || !v.UpdatedAt.Equal(now)) {
			t.Errorf("%s changed a visible field, but UpdatedAt is %v, want %v", s.method, v.UpdatedAt, now)
		}
	}
	for m := range reflect.TypeFor[*video.Video]().Methods() {
		for in := range m.Type.Ins() {
			if in == reflect.TypeFor[time.Time]() && !slices.Contains(called, m.Name) && !slices.Contains([]string{"Expired", "Previewable", "AccessRestored"}, m.Name) {
				t.Errorf("method %s is missing from this test's steps", m.Name)
			}
		}
	}
}

// shownOf returns a video's visible fields as JSON. It omits UpdatedAt and the fields whose changes
// do not trigger an event.
func shownOf(t *testing.T, v *video.Video) string {
	t.Helper()
	quiet := *v
	quiet.Views, quiet.Progress, quiet.UpdatedAt = 0, 0, time.Time{}
	text, err := json.Marshal(Shown(video.Addresses{Base: "https://lrl.example"}, func() time.Time { return time.Time{} })(&quiet))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
