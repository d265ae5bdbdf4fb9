// Package eventstest lets a test read the events that a service has written.
package eventstest

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events/outbox"
)

// Reader is a Firestore client, or a service's wrapper around one.
type Reader interface {
	Collection(path string) *firestore.CollectionRef
}

// All returns the events of all accounts in commit order. It fails the test if a document id is not
// an event id. It sorts the events in memory because every index begins with the account.
func All(tb testing.TB, db Reader) []outbox.Document {
	tb.Helper()
	snaps, err := db.Collection(outbox.Collection).Documents(tb.Context()).GetAll()
	if err != nil {
		tb.Fatal(err)
	}
	out := make([]outbox.Document, len(snaps))
	for i, snap := range snaps {
		if err := snap.DataTo(&out[i]); err != nil {
			tb.Fatal(err)
		}
		if !strings.HasPrefix(snap.Ref.ID, "evt_") {
			tb.Errorf("document id %q is not an event id", snap.Ref.ID)
		}
	}
	slices.SortFunc(out, func(a, b outbox.Document) int { return cmp.Compare(a.Order, b.Order) })
	return out
}

// Types returns the types of the events that [All] returns.
func Types(tb testing.TB, db Reader) (types []string) {
	tb.Helper()
	for _, e := range All(tb, db) {
		types = append(types, e.Type)
	}
	return types
}
