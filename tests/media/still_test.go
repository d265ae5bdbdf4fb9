package media

import (
	"bytes"
	"image"
	"image/jpeg"
	"io"
	"net/http"
	"testing"
	"time"
)

// The test requests thumbnails of a video that is red, green and then blue, for four seconds each.
func TestAThumbnailIsThePictureAtItsTime(t *testing.T) {
	t.Parallel()
	s := newSystem(t, map[string]string{"LINKREEL_SWEEP_EVERY": "1s"})
	m := &maker{t: t, dir: t.TempDir()}
	film := m.ff("-f lavfi -i color=red:s=640x360:r=25:d=4 -f lavfi -i color=lime:s=640x360:r=25:d=4 -f lavfi -i color=blue:s=640x360:r=25:d=4 " +
		"-filter_complex concat=n=3:v=1:a=0" + x264 + "-g 50 film.mp4")
	s.work()
	u := s.upload(film)
	s.eventually("the video is ready", func() bool { return u.look() == "ready" })
	share, _ := u.call(http.MethodGet, "/"+u.id, nil)["shareUrl"].(string)
	picture := func() (red, green, blue uint32) {
		resp, err := http.Get(share + "/thumbnail.jpg")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		img, err := jpeg.Decode(bytes.NewReader(body))
		if err != nil {
			t.Fatalf("cannot decode the thumbnail, status %d: %v", resp.StatusCode, err)
		}
		middle := image.Pt(img.Bounds().Dx()/2, img.Bounds().Dy()/2)
		red, green, blue, _ = img.At(middle.X, middle.Y).RGBA()
		return red >> 8, green >> 8, blue >> 8
	}
	for _, tt := range []struct {
		at   any
		want func(r, g, b uint32) bool
		name string
	}{
		{10.0, func(r, g, b uint32) bool { return b > 200 && r < 60 && g < 60 }, "blue"},
		{5.5, func(r, g, b uint32) bool { return g > 200 && r < 60 && b < 60 }, "green"},
		{0, func(r, g, b uint32) bool { return r > 200 && g < 60 && b < 60 }, "red"},
		{12.0, func(r, g, b uint32) bool { return b > 200 && r < 60 && g < 60 }, "blue at the end"},
	} {
		begun := time.Now()
		if u.call(http.MethodPut, "/"+u.id+"/thumbnail", map[string]any{"time": tt.at}) == nil {
			t.Fatalf("setting the thumbnail to %v s failed", tt.at)
		}
		s.eventually("the thumbnail is "+tt.name, func() bool { return tt.want(picture()) })
		t.Logf("%s after %v", tt.name, time.Since(begun).Round(time.Millisecond))
	}
	u.call(http.MethodPut, "/"+u.id+"/thumbnail", map[string]any{"time": nil})
	if got := u.call(http.MethodGet, "/"+u.id, nil)["thumbnailTime"]; got != nil {
		t.Errorf("thumbnailTime is %v after the reset to the automatic thumbnail, want null", got)
	}
	if u.call(http.MethodPut, "/"+u.id+"/thumbnail", map[string]any{"time": 13}) != nil {
		t.Error("setting the thumbnail to a time past the end succeeded, want an error")
	}
}
