package web

import (
	"errors"
	"net/http"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// tried is the "Try a visit" form on a link's page. Once the person has submitted the form, tried
// also contains the visit's result. The form uses GET because it does not change anything.
type tried struct {
	Fields []field
	Open   bool
	Answer *client.LinkExplained
	Error  string // why there is no result
}

// Text describes the visit's result, according to its HTTP status.
func (t *tried) Text() string {
	if key := "try.status." + strconv.Itoa(t.Answer.Status); text.Has(key) {
		return text.Get(key)
	}
	return text.Get("try.status")
}

// tryVisit asks the API for the result of the visit that the page's URL describes.
func (r *request) tryVisit(g *errgroup.Group) *tried {
	plain := func(name, kind string, max int) field {
		return field{Name: "try-" + name, Key: "try." + name, Kind: kind, Value: r.Query("try-" + name), Max: max}
	}
	choice := func(name, prefix string, values []string) field {
		f := plain(name, "select", 0).choose(prefix, values...)
		f.Choices = append([]option{{Text: text.Get("try.unknown")}}, f.Choices...)
		return f
	}
	at := plain("at", "time", 0)
	t := &tried{Open: r.Query("try") != "", Fields: []field{
		choice("device", "rule.device.", ruleDevices), choice("system", "rule.system.", ruleSystems),
		plain("country", "text", 8), plain("language", "text", 200), plain("query", "text", 2000), plain("path", "text", 2048),
		at, plain("percent", "number", 2),
	}}
	moment, ok := readMinute(at.Value, r.Query("try-atMs"), nil)
	for i := range t.Fields {
		f := &t.Fields[i]
		if f.Name != at.Name {
			continue
		}
		if f.Value = toMinute(moment); !ok {
			f.Error = text.Get("form.time")
		}
	}
	if !t.Open || !ok {
		return t
	}
	q := r.filters()
	for _, f := range t.Fields {
		if f.Value != "" {
			q.Set(f.Name[len("try-"):], f.Value)
		}
	}
	if moment != nil {
		q.Set("at", strconv.FormatInt(moment.Time().UnixMilli(), 10))
	}
	g.Go(func() error {
		var answer client.LinkExplained
		err := atField(r.do(http.MethodGet, r.linkPath()+"/explain?"+q.Encode(), nil, &answer))
		if err == nil {
			t.Answer = &answer
			return nil
		}
		return t.refused(err)
	})
	return t
}

// refused shows why there is no result. The rest of the page works without a result, so the page
// only fails if the session has ended.
func (t *tried) refused(err error) error {
	var e *apierr.Error
	if errors.As(err, &e) && e.Code.Status() == http.StatusUnauthorized {
		return err
	}
	t.Error = text.Get("try.away")
	if e == nil {
		return nil
	}
	for _, d := range e.Details {
		for i := range t.Fields {
			if t.Fields[i].Name == "try-"+d.Field {
				t.Fields[i].Error, t.Error = d.Message, text.Get("form.check")
			}
		}
	}
	return nil
}
