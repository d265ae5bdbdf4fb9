package preflight

import (
	"context"
	"fmt"
	"net/url"
	"strings"
)

func (p *preflight) database() string {
	return fmt.Sprintf("%s/v1/projects/%s/databases/%s", p.firestoreAPI, url.PathEscape(p.Firestore.Project), p.Firestore.Database)
}

// wanted is the chart's firestore.indexes.json.
type wanted struct {
	Indexes []struct {
		CollectionGroup, QueryScope string
		Fields                      []indexField
	}
	FieldOverrides []struct {
		CollectionGroup, FieldPath string
		TTL                        bool `json:"ttl"`
	}
}

type indexField struct{ FieldPath, Order, ArrayConfig string }

// page is one page of a Firestore list.
type page struct {
	Indexes []struct {
		Name, QueryScope, State string
		Fields                  []indexField
	}
	Fields []struct {
		Name      string
		TTLConfig struct{ State string } `json:"ttlConfig"`
	}
	NextPageToken string
}

// pages reads all pages of a list. what is the list's path below the database's collection groups.
func (p *preflight) pages(ctx context.Context, what string, take func(page)) error {
	for token := ""; ; {
		var next page
		address := p.database() + "/collectionGroups/-/" + what + "pageSize=300&pageToken=" + url.QueryEscape(token)
		if _, err := p.get(ctx, address, &next); err != nil {
			return err
		}
		take(next)
		if token = next.NextPageToken; token == "" {
			return nil
		}
	}
}

// shape builds a name for an index from its fields. Google adds the document name as the last
// field.
func shape(group, scope string, fields []indexField) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", group, strings.ToLower(scope))
	for _, f := range fields {
		if f.FieldPath != "__name__" {
			fmt.Fprintf(&b, " %s %s%s", strings.ReplaceAll(f.FieldPath, "`", ""), strings.ToLower(f.Order), strings.ToLower(f.ArrayConfig))
		}
	}
	return b.String()
}

// part returns the path segment after word in a resource name.
func part(name, word string) string {
	_, rest, _ := strings.Cut(name, "/"+word+"/")
	first, _, _ := strings.Cut(rest, "/")
	return first
}

const deployIndexes = "Deploy the chart's firestore.indexes.json (docs/operations.md, Firestore)."

func (p *preflight) checkIndexes(ctx context.Context) {
	var w wanted
	if !p.want(p.indexes, &w) {
		return
	}
	have := map[string]string{} // state of each index
	err := p.pages(ctx, "indexes?", func(next page) {
		for _, i := range next.Indexes {
			have[shape(part(i.Name, "collectionGroups"), i.QueryScope, i.Fields)] = i.State
		}
	})
	if err != nil {
		p.complain("Firestore's indexes cannot be listed: %v. The account needs roles/datastore.viewer or roles/datastore.user, "+
			"and the database %s must exist in project %s.", err, p.Firestore.Database, p.Firestore.Project)
		return
	}
	for _, i := range w.Indexes {
		name := shape(i.CollectionGroup, i.QueryScope, i.Fields)
		switch state, found := have[name]; {
		case !found:
			p.complain("the index %s is missing. %s", name, deployIndexes)
		case state != "READY":
			p.complain("the index %s is %s, so its queries fail. Wait until it is READY.", name, state)
		}
	}
}

func (p *preflight) checkTTL(ctx context.Context) {
	var w wanted
	if !p.want(p.indexes, &w) {
		return
	}
	have := map[string]string{}
	err := p.pages(ctx, "fields?filter="+url.QueryEscape("ttlConfig:*")+"&", func(next page) {
		for _, f := range next.Fields {
			have[part(f.Name, "collectionGroups")+"."+part(f.Name, "fields")] = f.TTLConfig.State
		}
	})
	if err != nil {
		p.complain("Firestore's TTL policies cannot be listed: %v", err)
		return
	}
	for _, f := range w.FieldOverrides {
		name := f.CollectionGroup + "." + f.FieldPath
		switch state, found := have[name]; {
		case !f.TTL:
		case !found:
			p.complain("the TTL policy for %s is missing, so expired records would never be deleted. %s", name, deployIndexes)
		case state == "NEEDS_REPAIR":
			p.complain("the TTL policy for %s needs repair. Disable it and deploy it again.", name)
		}
	}
}
