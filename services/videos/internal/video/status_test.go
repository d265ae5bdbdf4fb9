package video_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

var (
	start  = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	limits = video.UploadLimits{MaxBytes: 10 << 30, MaxAge: 48 * time.Hour}
)

func uploading() *video.Video {
	return video.New(video.Identity{ID: "vid_1", AccountID: "acc_1", Slug: "abcdefg", UploadObject: "uploads/vid_1/source"},
		video.Checked{Access: video.Access{Privacy: video.Public}}, "", start)
}

func source(generation, size int64) video.Source {
	return video.Source{Generation: generation, Size: size, JobID: "job"}
}

func processing(t *testing.T) *video.Video {
	t.Helper()
	v := uploading()
	if err := v.FileArrived(source(1, 100), limits, start); err != nil {
		t.Fatal(err)
	}
	return v
}

func ready(t *testing.T) *video.Video {
	t.Helper()
	v := processing(t)
	if err := v.Publish("job", video.Media{Version: 1}, start); err != nil {
		t.Fatal(err)
	}
	return v
}

func failed(t *testing.T) *video.Video {
	t.Helper()
	v := processing(t)
	if err := v.Fail("job", video.Failure{Code: "CORRUPT_FILE"}, start); err != nil {
		t.Fatal(err)
	}
	return v
}

// If a worker cannot use a file that was uploaded as a form, the failure mentions the form. The
// Content-Type alone does not make an upload fail: an upload may have any Content-Type.
func TestAFormInPlaceOfAFileIsExplained(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		contentType string
		code        video.Code
		form        bool
	}{
		{"multipart/form-data; boundary=x", "NOT_A_VIDEO", true},
		{"application/x-www-form-urlencoded", "NOT_A_VIDEO", true},
		{"Application/X-WWW-Form-Urlencoded", "CORRUPT_FILE", true},
		{"application/x-www-form-urlencoded", "TOO_LONG", false},
		{"video/mp4", "NOT_A_VIDEO", false},
		{"", "CORRUPT_FILE", false},
	} {
		v := processing(t)
		v.Source.ContentType = tt.contentType
		if err := v.Fail("job", video.Failure{Code: tt.code, Message: "why"}, start); err != nil {
			t.Fatal(err)
		}
		want := video.Failure{Code: tt.code, Message: "why"}
		if tt.form {
			want = video.Failure{Code: "NOT_A_VIDEO", Message: transcode.FormUpload}
		}
		if *v.Failure != want {
			t.Errorf("failure %s for an upload with Content-Type %q = %+v, want %+v", tt.code, tt.contentType, *v.Failure, want)
		}
	}
}

func TestStatusMovesOnlyAlongTheTable(t *testing.T) {
	t.Parallel()
	want := map[[2]video.Status]bool{
		{video.Uploading, video.Processing}: true,
		{video.Uploading, video.Failed}:     true,
		{video.Processing, video.Ready}:     true,
		{video.Processing, video.Failed}:    true,
		{video.Failed, video.Processing}:    true,
	}
	all := []video.Status{video.Uploading, video.Processing, video.Ready, video.Failed}
	for _, from := range all {
		for _, to := range all {
			if got := from.CanBecome(to); got != want[[2]video.Status{from, to}] {
				t.Errorf("%s.CanBecome(%s) = %v, want %v", from, to, got, want[[2]video.Status{from, to}])
			}
		}
	}
}

func TestEventsOnEveryStatus(t *testing.T) {
	t.Parallel()
	states := map[video.Status]func(*testing.T) *video.Video{
		video.Uploading:  func(*testing.T) *video.Video { return uploading() },
		video.Processing: processing,
		video.Ready:      ready,
		video.Failed:     failed,
	}
	none := video.Status("")
	for name, event := range map[string]struct {
		do   func(*video.Video) error
		want map[video.Status]video.Status // by the status before the event; "" means that the event is rejected
	}{
		"newer file": {
			func(v *video.Video) error { return v.FileArrived(source(2, 5), limits, start) },
			map[video.Status]video.Status{video.Uploading: video.Processing, video.Processing: none, video.Ready: none, video.Failed: video.Processing},
		},
		"same file again": {
			func(v *video.Video) error { return v.FileArrived(source(v.Source.Generation, 5), limits, start) },
			map[video.Status]video.Status{video.Uploading: none, video.Processing: none, video.Ready: none, video.Failed: none},
		},
		"empty file": {
			func(v *video.Video) error { return v.FileArrived(source(2, 0), limits, start) },
			map[video.Status]video.Status{video.Uploading: video.Failed, video.Processing: none, video.Ready: none, video.Failed: video.Failed},
		},
		"file larger than allowed": {
			func(v *video.Video) error { return v.FileArrived(source(2, limits.MaxBytes+1), limits, start) },
			map[video.Status]video.Status{video.Uploading: video.Failed, video.Processing: none, video.Ready: none, video.Failed: video.Failed},
		},
		"file with a Content-Encoding": {
			func(v *video.Video) error {
				s := source(2, 5)
				s.Encoded = true
				return v.FileArrived(s, limits, start)
			},
			map[video.Status]video.Status{video.Uploading: video.Failed, video.Processing: none, video.Ready: none, video.Failed: video.Failed},
		},
		"result from the job": {
			func(v *video.Video) error { return v.Publish("job", video.Media{Version: 2}, start) },
			map[video.Status]video.Status{video.Uploading: none, video.Processing: video.Ready, video.Ready: video.Ready, video.Failed: none},
		},
		"older version of the result": {
			func(v *video.Video) error { return v.Publish("job", video.Media{Version: 1}, start) },
			map[video.Status]video.Status{video.Uploading: none, video.Processing: video.Ready, video.Ready: none, video.Failed: none},
		},
		"result from another job": {
			func(v *video.Video) error { return v.Publish("other", video.Media{Version: 9}, start) },
			map[video.Status]video.Status{video.Uploading: none, video.Processing: none, video.Ready: none, video.Failed: none},
		},
		"failure of the job": {
			func(v *video.Video) error { return v.Fail("job", video.Failure{Code: video.Internal}, start) },
			map[video.Status]video.Status{video.Uploading: none, video.Processing: video.Failed, video.Ready: none, video.Failed: none},
		},
		"upload deadline": {
			func(v *video.Video) error { return v.Expire(limits, start.Add(48*time.Hour)) },
			map[video.Status]video.Status{video.Uploading: video.Failed, video.Processing: none, video.Ready: none, video.Failed: none},
		},
		"just before the upload deadline": {
			func(v *video.Video) error { return v.Expire(limits, start.Add(48*time.Hour-time.Second)) },
			map[video.Status]video.Status{video.Uploading: none, video.Processing: none, video.Ready: none, video.Failed: none},
		},
	} {
		for from, make := range states {
			t.Run(name+"/"+string(from), func(t *testing.T) {
				t.Parallel()
				v := make(t)
				before := *v
				err := event.do(v)
				want := event.want[from]
				if want == none {
					if !errors.Is(err, video.ErrTransition) {
						t.Errorf("error = %v, want ErrTransition", err)
					}
					if diff := cmp.Diff(before, *v); diff != "" {
						t.Errorf("a rejected event changed the video (-before +after):\n%s", diff)
					}
					return
				}
				if err != nil || v.Status != want {
					t.Errorf("got status %q and error %v, want status %q", v.Status, err, want)
				}
				if (v.Failure != nil) != (v.Status == video.Failed) {
					t.Errorf("got status %s with failure %v, want a failure only in status failed", v.Status, v.Failure)
				}
			})
		}
	}
}

func TestProgressNeverFallsNorFinishesEarly(t *testing.T) {
	t.Parallel()
	v := processing(t)
	var got []int
	for _, p := range []int{10, 5, 60, 100} {
		v.ReportProgress(p)
		got = append(got, v.Progress)
	}
	if err := v.Publish("job", video.Media{Version: 1}, start); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{10, 10, 60, 99, 100}, append(got, v.Progress)); diff != "" {
		t.Error(diff)
	}
}

func TestANewFileAfterAFailureStartsOver(t *testing.T) {
	t.Parallel()
	v := failed(t)
	v.Progress = 40
	next := video.Source{Generation: 7, Size: 3, JobID: "next"}
	if err := v.FileArrived(next, limits, start); err != nil {
		t.Fatal(err)
	}
	if v.Progress != 0 || v.Failure != nil || v.Source != next {
		t.Errorf("after a new file: got progress %d, failure %v and source %v, want 0, no failure and %v", v.Progress, v.Failure, v.Source, next)
	}
	if err := v.Fail("job", video.Failure{}, start); !errors.Is(err, video.ErrTransition) {
		t.Errorf("Fail of the previous job returned %v, want %v", err, video.ErrTransition)
	}
}

func TestBytesCountsWhatASessionHoldsAndNothingOfARefusedFile(t *testing.T) {
	t.Parallel()
	v := video.Video{Upload: video.Upload{Received: 700}}
	v.Source.Size, v.Media = 600, &video.Media{Bytes: 5}
	if got := v.Bytes(); got != 1305 {
		t.Errorf("Bytes = %d, want 1305: 700 from the session, 600 from the source and 5 from its media", got)
	}
	v.Status, v.Media = video.Failed, nil
	if got := v.Bytes(); got != 700 {
		t.Errorf("Bytes = %d after the file was rejected, want the session's 700", got)
	}
}
