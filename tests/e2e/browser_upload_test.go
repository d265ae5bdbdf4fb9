package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-rod/rod/lib/proto"
)

// A person uploads two files at the same time. A reload interrupts the first upload, which then
// resumes automatically. The second file is not a video, and the person replaces it with a video at
// the same share URL.
func TestUploadsInABrowser(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "notes.mp4")
	check(t, os.WriteFile(bad, []byte("not a video at all"), 0o600))
	good := scenery(t, 3)
	// A free box at the end makes the file large enough to be interrupted.
	f, err := os.OpenFile(good, os.O_APPEND|os.O_WRONLY, 0)
	check(t, err)
	rest := make([]byte, 30<<20)
	copy(rest, []byte{byte(len(rest) >> 24), byte(len(rest) >> 16 & 0xff), byte(len(rest) >> 8 & 0xff), byte(len(rest) & 0xff), 'f', 'r', 'e', 'e'})
	_, err = f.Write(rest)
	check(t, err)
	check(t, f.Close())

	v := person(t, look{})
	v.open(stack.BaseURL + "/app/upload")
	page := v.Timeout(patience)
	slow := func(bytes float64) {
		check(t, proto.NetworkEmulateNetworkConditions{DownloadThroughput: -1, UploadThroughput: bytes}.Call(v.Page))
	}
	slow(8 << 20)
	page.MustElement("input[type=file]:not([disabled])").MustSetFiles(good)
	page.MustElementR("#uploads li", "[1-9]\\d? %")
	page.MustReload()
	slow(-1)
	page.MustElementR("#uploads li", "Ready to watch")

	page.MustElement("input[type=file]:not([disabled])").MustSetFiles(bad)
	page.MustElementR("#uploads li", "could not be prepared")
	small := scenery(t, 2)
	page.MustElementR("#uploads button", "Send another file")
	page.MustEval(`() => { HTMLInputElement.prototype.click = function () {} }`) // a headless browser has no file picker
	page.MustElementR("#uploads button", "Send another file").MustClick()
	page.MustElement("input[type=file]").MustSetFiles(small)
	eventually(t, patience, "both videos are ready", func() bool {
		n, err := v.Eval(`() => [...document.querySelectorAll("#uploads li")].filter((li) => li.textContent.includes("Ready to watch")).length`)
		return err == nil && n.Value.Int() == 2
	})
	v.mu.Lock()
	if v.dialogs != 1 {
		t.Errorf("%d dialogs opened, want only the one in which the browser asks whether to leave the page", v.dialogs)
	}
	v.dialogs = 0
	v.mu.Unlock()
	v.clean()
}
