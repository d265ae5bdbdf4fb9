package web

import (
	"errors"
	"maps"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// commaList reads a field with values separated by commas.
func commaList(field string) []string {
	out := []string{}
	for part := range strings.SplitSeq(field, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// lines reads a field with one value per line.
func lines(field string) []string {
	out := []string{}
	for part := range strings.Lines(field) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// ruleField matches the field that an error about a rule names. It splits that name into the form
// field's name and the rest, such as the index in a list.
var ruleField = regexp.MustCompile(`^(rules\.\d+\.(?:name|url|when(?:\.[a-z]+)?))(?:\.(.*))?$`)

// atField turns an error about one value in a list, such as "events.2", into an error about
// the list's field, and capitalizes each message.
func atField(err error) error {
	var e *apierr.Error
	if !errors.As(err, &e) || len(e.Details) == 0 {
		return err
	}
	whole := *e
	whole.Details = nil
	seen := map[string]bool{}
	for _, d := range e.Details {
		place, rest, listed := strings.Cut(d.Field, ".")
		if m := ruleField.FindStringSubmatch(d.Field); m != nil {
			place, rest, listed = m[1], m[2], m[2] != ""
		}
		if seen[place] {
			continue // a field shows only its first error
		}
		seen[place] = true
		first, size := utf8.DecodeRuneInString(d.Message)
		d.Field, d.Message = place, string(unicode.ToUpper(first))+d.Message[size:]
		if n, failed := strconv.Atoi(rest); listed && failed == nil {
			d.Message = text.Get("form.value") + " " + strconv.Itoa(n+1) + ": " + d.Message
		}
		whole.Details = append(whole.Details, d)
	}
	return &whole
}

// minuteForm is the format of <input type="datetime-local">. Without scripts, the time is in UTC, and
// the page says so.
const minuteForm = "2006-01-02T15:04"

func toMinute(at *client.Time) string {
	if at == nil {
		return ""
	}
	return at.Time().Format(minuteForm)
}

// minute reads a time field. The script (app.ts) shows it in the viewer's time zone and adds the
// instant as <name>Ms. An unchanged time keeps its seconds.
func (r *request) minute(name string, present *client.Time) (*client.Time, bool) {
	return readMinute(strings.TrimSpace(r.form.Get(name)), r.form.Get(name+"Ms"), present)
}

func readMinute(typed, instant string, present *client.Time) (*client.Time, bool) {
	if typed == "" {
		return nil, true
	}
	ms, err := strconv.ParseInt(instant, 10, 64)
	if err != nil {
		// No script ran. Some browsers send seconds even if the field does not show them.
		if len(typed) == len(minuteForm) {
			typed += ":00"
		}
		at, err := time.Parse(minuteForm+":05", typed)
		if err != nil {
			return nil, false
		}
		ms = at.UnixMilli()
	}
	// The field shows whole minutes. Saving the form must not drop the seconds of a stored time.
	if present != nil && present.Time().UnixMilli()/60_000 == ms/60_000 {
		return present, true
	}
	chosen := client.At(time.UnixMilli(ms))
	return &chosen, true
}

// pageLink returns the current page's URL with a different cursor and the same filters.
func (r *request) pageLink(q url.Values, cursor string) string {
	next := maps.Clone(q)
	next.Set("cursor", cursor)
	return r.Path() + "?" + next.Encode()
}

// filters returns the named query parameters that are set.
func (r *request) filters(names ...string) url.Values {
	q := url.Values{}
	for _, name := range names {
		if v := strings.TrimSpace(r.Query(name)); v != "" {
			q.Set(name, v)
		}
	}
	return q
}
