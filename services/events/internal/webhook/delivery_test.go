package webhook_test

import (
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// No messages are sent during a pause, so failures before its end do not count towards the five
// days.
func TestFailuresBeforeTheEndOfAPauseDoNotCount(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	failed := webhook.Result{Cause: webhook.CauseStatus, Attempt: webhook.Attempt{Status: 500, Error: "500"}}
	w := &webhook.Webhook{Enabled: true, FailingSince: now.Add(-6 * 24 * time.Hour), Cause: webhook.CauseStatus}
	for name, c := range map[string]struct {
		result webhook.Result
		since  time.Time
		want   webhook.Health
	}{
		"no pause":                     {failed, time.Time{}, webhook.GiveUp},
		"a pause that ended long ago":  {failed, now.Add(-7 * 24 * time.Hour), webhook.GiveUp},
		"a pause that ended recently":  {failed, now.Add(-time.Hour), webhook.BeganToFail},
		"a success after such a pause": {webhook.Result{Attempt: webhook.Attempt{Status: 200}}, now.Add(-time.Hour), webhook.Recovered},
		"a 410 after such a pause":     {webhook.Result{Attempt: webhook.Attempt{Status: 410, Error: "410"}}, now.Add(-time.Hour), webhook.GiveUp},
	} {
		if got, _ := w.Judge(c.result, now, c.since); got != c.want {
			t.Errorf("%s: Judge() = %v, want %v", name, got, c.want)
		}
	}
}
