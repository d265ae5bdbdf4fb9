package videos_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/services/localcloud/storage"
	"github.com/linkreel/linkreel/services/videos"
)

// In production, the config does not set a clock, so the expiry of a notification's token is
// checked against the system clock.
func TestNotificationsAreCheckedByTheSystemsClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(cfg *videos.Config, _ *storage.Options) { cfg.Now = nil })
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	claims := fmt.Sprintf(`{"iss":"https://accounts.google.com","aud":%q,"iat":1,"exp":99999999999}`, w.base+videos.StorageHookPath)
	token := part(`{"alg":"RS256","kid":"k"}`) + "." + part(claims) + "." + part("no signature")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.base+videos.StorageHookPath, strings.NewReader("{}"))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := w.client.Do(req)
	must(t, err)
	_ = res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden {
		t.Errorf("a request with a wrongly signed token returned %d, want 401 or 403", res.StatusCode)
	}
}
