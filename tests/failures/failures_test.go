package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// An alert with a label, a time, or the words "after the repair".
var alertOrTime = regexp.MustCompile("`(Linkreel\\w+)`(?: \\(`?(\\w+)`?[^)]*\\))?|([\\d.]+) (min|s)\\b|(after the repair)")

// alertsIn parses a cell such as "`LinkreelA`, `LinkreelB` (`quota`) 1.5 min; `LinkreelC` after the repair".
func alertsIn(t *testing.T, cell string) (out failure) {
	t.Helper()
	out.expects = map[string]time.Duration{}
	var waiting []string // alerts whose time follows
	for _, m := range alertOrTime.FindAllStringSubmatch(cell, -1) {
		switch {
		case m[1] != "":
			waiting = append(waiting, strings.TrimSpace(m[1]+" "+m[2]))
			continue
		case m[5] != "":
			out.afterwards = append(out.afterwards, waiting...)
		case len(waiting) > 0:
			at, err := time.ParseDuration(m[3] + m[4][:1]) // m or s
			if err != nil {
				t.Fatal(err)
			}
			for _, alert := range waiting {
				out.expects[alert] = at
			}
		}
		waiting = nil
	}
	if len(waiting) > 0 {
		t.Errorf("%q does not give a time for %v", cell, waiting)
	}
	return out
}

func TestThePageNamesTheFailuresThatCanBePlayed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	page, program := map[string][]failure{}, map[string][]failure{
		"Redis": redisFailures, "Firestore and localcloud": firestoreFailures,
		"Services": serviceFailures, "Videos": videoFailures, "Webhooks and certificates": webhookFailures,
	}
	var section string
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(title)
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) == 4 && program[section] != nil && !strings.HasPrefix(line, "| What fails") {
			f := alertsIn(t, cells[2])
			f.what = strings.TrimSpace(cells[0])
			page[section] = append(page[section], f)
		}
	}
	if diff := cmp.Diff(page, program, cmp.AllowUnexported(failure{}), cmpopts.EquateEmpty(), cmp.FilterPath(onlyInProgram, cmp.Ignore())); diff != "" {
		t.Errorf("docs/failures.md and the program differ (-page +program):\n%s", diff)
	}
}

// onlyInProgram reports whether a path leads to a field of [failure] that the page does not state.
func onlyInProgram(p cmp.Path) bool {
	field, ok := p.Last().(cmp.StructField)
	return ok && !slices.Contains([]string{"what", "expects", "afterwards"}, field.Name())
}

func TestTheVerdict(t *testing.T) {
	t.Parallel()
	f := failure{expects: map[string]time.Duration{"LinkreelA quota": time.Minute, "LinkreelB": 10 * time.Minute}}
	good := func() result {
		return result{
			failure: f, broken: 12 * time.Minute, after: 7 * time.Minute, clicks: clicks{answered: 10, counted: 10},
			alerts: map[string]span{"LinkreelA dependency=Firestore reason=quota": {70 * time.Second, 15 * time.Minute}, "LinkreelB": {11 * time.Minute, 13 * time.Minute}},
		}
	}
	for name, test := range map[string]struct {
		change func(r *result)
		want   []string
	}{
		"as expected":                                     {func(*result) {}, nil},
		"an alert is too late":                            {func(r *result) { r.alerts["LinkreelB"] = span{11*time.Minute + time.Second, 13 * time.Minute} }, []string{"LinkreelB fired after 11m1s, want 10m0s"}},
		"an alert is missing":                             {func(r *result) { delete(r.alerts, "LinkreelB") }, []string{"LinkreelB did not fire within 12m0s, want 10m0s"}},
		"the play was short":                              {func(r *result) { r.broken = 9 * time.Minute; delete(r.alerts, "LinkreelB") }, nil},
		"an unexpected alert":                             {func(r *result) { r.alerts["LinkreelC"] = span{time.Second, time.Minute} }, []string{"LinkreelC fired after 1s, want it not to fire"}},
		"an unexpected label":                             {func(r *result) { r.alerts["LinkreelA reason=index"] = span{time.Second, time.Minute} }, []string{"LinkreelA reason=index fired after 1s, want it not to fire"}},
		"an alert keeps firing":                           {func(r *result) { r.alerts["LinkreelB"] = span{10 * time.Minute, 0} }, []string{"LinkreelB was still firing 7m0s after the repair"}},
		"an alert that looks back for hours keeps firing": {func(r *result) { r.alerts["LinkreelB window=6h"] = span{10 * time.Minute, 0} }, nil},
		"an alert after the repair": {func(r *result) {
			r.afterwards = []string{"LinkreelC"}
			r.alerts["LinkreelC"] = span{13 * time.Minute, 14 * time.Minute}
		}, nil},
		"no alert after the repair":          {func(r *result) { r.afterwards = []string{"LinkreelC"} }, []string{"LinkreelC did not fire after the repair"}},
		"clicks are not counted":             {func(r *result) { r.clicks.counted = 7 }, []string{"3 clicks were not counted"}},
		"clicks are counted twice":           {func(r *result) { r.clicks.counted, r.clicks.unknown = 15, 2 }, []string{"3 extra clicks were counted"}},
		"clicks during the failure are lost": {func(r *result) { r.losesClicks, r.calls.redirects, r.clicks.counted = true, 5, 5 }, nil},
		"a playback fails":                   {func(r *result) { r.calls.playbackFailed = 2 }, []string{"2 playbacks failed"}},
		"a playback may fail":                {func(r *result) { r.failsPlayback, r.calls.playbackFailed = true, 2 }, nil},
		"a redirect fails":                   {func(r *result) { r.calls.redirectsFailed = 1 }, []string{"1 redirects for links in memory failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := good()
			test.change(&r)
			if diff := cmp.Diff(test.want, r.faults()); diff != "" {
				t.Errorf("the verdict differs (-want +got):\n%s", diff)
			}
		})
	}
}
