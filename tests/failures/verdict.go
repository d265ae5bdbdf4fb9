package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// tolerance is how much later than measured an alert may fire. Prometheus reads the metrics every
// 15 s and evaluates the rules every 30 s.
const tolerance = time.Minute

// lookBack contains the alerts that look back longer than five minutes, and budget windows. They
// keep firing for that long after their cause is gone.
var lookBack = map[string]time.Duration{
	"LinkreelClicksNotCounted": 10 * time.Minute, "LinkreelWebhooksFailing": 10 * time.Minute, "LinkreelClicksLost": 15 * time.Minute,
	"LinkreelWebhooksUnsigned": 15 * time.Minute, "LinkreelPodRestarts": 30 * time.Minute, "LinkreelVideosFailing": 30 * time.Minute,
	"LinkreelWebhooksSlow": 30 * time.Minute, "LinkreelVideosSlow": 30 * time.Minute, "LinkreelCertificatesFailing": time.Hour,
	"window=6h": 30 * time.Minute, "window=3d": 6 * time.Hour,
}

// endsWithin returns how long an alert may fire after the repair.
func endsWithin(alert string) time.Duration {
	long := 5 * time.Minute
	for _, word := range strings.Fields(alert) {
		long = max(long, lookBack[word])
	}
	return long + 2*time.Minute
}

// lasts returns how long the failure lasts. chosen takes precedence unless it is zero.
func (f failure) lasts(chosen time.Duration) time.Duration {
	last := slices.Max(append(slices.Collect(maps.Values(f.expects)), 0))
	return cmp.Or(chosen, f.broken, last+90*time.Second)
}

// watched returns how long the program watches after the repair: until every expected alert should
// have resolved. chosen takes precedence unless it is zero.
func (f failure) watched(chosen time.Duration) time.Duration {
	longest := endsWithin("")
	for _, key := range slices.AppendSeq(slices.Clone(f.afterwards), maps.Keys(f.expects)) {
		longest = max(longest, endsWithin(key))
	}
	return cmp.Or(chosen, longest)
}

// result is what happened during a play.
type result struct {
	failure
	err           error           // the play ended early
	broken, after time.Duration   // durations of the failure and of the watch after the repair
	alerts        map[string]span // by name and labels
	calls         calls           // during the failure
	clicks        clicks
}

// span is when an alert fired and resolved, measured from the failure. ended is zero while the
// alert is still firing.
type span struct{ fired, ended time.Duration }

// matches reports whether an alert with labels matches a key of [failure.expects].
func matches(alert, key string) bool {
	words := strings.Fields(alert)
	name, value, labelled := strings.Cut(key, " ")
	return words[0] == name && (!labelled || slices.ContainsFunc(words[1:], func(w string) bool { return strings.HasSuffix(w, "="+value) }))
}

// first returns when the first of the alerts with a key fired.
func (r result) first(key string) (at time.Duration, fired bool) {
	for alert, s := range r.alerts {
		if matches(alert, key) && (!fired || s.fired < at) {
			at, fired = s.fired, true
		}
	}
	return at, fired
}

// faults returns what differs from the failure's expectations. It ignores anything that a play with
// shorter times could not have observed.
func (r result) faults() (out []string) {
	if r.err != nil {
		return []string{r.err.Error()}
	}
	for _, key := range slices.Sorted(maps.Keys(r.expects)) {
		want := r.expects[key]
		switch at, fired := r.first(key); {
		case !fired && r.broken > want+tolerance:
			out = append(out, fmt.Sprintf("%s did not fire within %s, want %s", key, r.broken.Round(time.Second), want))
		case fired && at > want+tolerance:
			out = append(out, fmt.Sprintf("%s fired after %s, want %s", key, at, want))
		}
	}
	for _, key := range r.afterwards {
		if at, fired := r.first(key); !fired || at < r.broken {
			out = append(out, key+" did not fire after the repair")
		}
	}
	for _, alert := range slices.Sorted(maps.Keys(r.alerts)) {
		s := r.alerts[alert]
		is := func(key string) bool { return matches(alert, key) }
		if !slices.ContainsFunc(slices.AppendSeq(slices.Clone(r.afterwards), maps.Keys(r.expects)), is) {
			out = append(out, fmt.Sprintf("%s fired after %s, want it not to fire", alert, s.fired))
		}
		if s.ended == 0 && r.after >= endsWithin(alert) {
			out = append(out, fmt.Sprintf("%s was still firing %s after the repair", alert, r.after))
		}
	}
	return append(out, r.faultsOfCalls()...)
}

func (r result) faultsOfCalls() (out []string) {
	if r.calls.redirectsFailed > 0 && !r.failsRedirects {
		out = append(out, fmt.Sprintf("%d redirects for links in memory failed", r.calls.redirectsFailed))
	}
	if failed := r.calls.playbackFailed; failed > 0 && !r.failsPlayback {
		out = append(out, fmt.Sprintf("%d playbacks failed", failed))
	}
	lost := r.clicks.answered - r.clicks.counted
	switch {
	case lost > 0 && !r.losesClicks:
		out = append(out, fmt.Sprintf("%d clicks were not counted", lost))
	case lost > int64(r.calls.redirects)+slugs: // one click per link may fall between the two counts
		out = append(out, fmt.Sprintf("%d clicks were lost, but only %d happened during the failure", lost, r.calls.redirects))
	case lost <= 0 && r.losesClicks:
		out = append(out, "no clicks were lost")
	case lost < -r.clicks.unknown:
		out = append(out, fmt.Sprintf("%d extra clicks were counted", -lost-r.clicks.unknown))
	}
	return out
}

// printTable prints a line for each result and what differs from its expectations. It reports
// whether everything was as expected.
func printTable(results []result) (good bool) {
	good = true
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nFAILURE\tVERDICT\tCALLS FAILED\tCLICKS COUNTED\tALERTS")
	for _, r := range results {
		verdict := "as expected"
		if faults := r.faults(); len(faults) > 0 {
			verdict, good = fmt.Sprintf("%d differ", len(faults)), false
			defer fmt.Printf("%s:\n   %s\n", r.name, strings.Join(faults, "\n   ")) // below the table
		}
		var alerts []string
		for _, alert := range slices.SortedFunc(maps.Keys(r.alerts), func(a, b string) int { return cmp.Compare(r.alerts[a].fired, r.alerts[b].fired) }) {
			name, _, _ := strings.Cut(alert, " window=") // a budget's windows count as one alert
			if !slices.ContainsFunc(alerts, func(earlier string) bool { return strings.HasPrefix(earlier, name+" after") }) {
				alerts = append(alerts, fmt.Sprintf("%s after %.0f s", name, r.alerts[alert].fired.Seconds()))
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%d of %d\t%d of %d\t%s\n", r.name, verdict, r.calls.failed, r.calls.all, r.clicks.counted, r.clicks.answered, strings.Join(alerts, ", "))
	}
	if err := table.Flush(); err != nil {
		return false
	}
	return good
}
