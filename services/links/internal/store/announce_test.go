package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/links/internal/tenancy"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// heard collects announced keys until the test takes them.
type heard struct {
	mu   sync.Mutex
	keys []string
}

func (h *heard) Announce(_ context.Context, keys ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keys = append(h.keys, keys...)
}

func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	keys := h.keys
	h.keys = nil
	slices.Sort(keys)
	return slices.Compact(keys)
}

// If a change is not announced, other replicas serve the old state until their cache entries
// expire. Each step below fails if the call that announces its change is missing.
func TestEveryChangeIsAnnounced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, links, domains := w.heard, w.links, w.domains
	accounts := tenancy.New(tenancy.Options{Standings: Standings(w.db.DB), Store: w.Store, Announce: h.Announce, Links: links, Domains: domains, Now: w.clock})
	ctx, acc := t.Context(), &identity.Principal{AccountID: "acc"}
	step := func(what string, err error, want ...string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if diff := cmp.Diff(want, h.take()); diff != "" {
			t.Errorf("announcements for: %s (-want +got):\n%s", what, diff)
		}
	}
	allow := func(int64) error { return nil }
	create := func(o identity.Origin, slugs ...string) ([]*link.Link, error) {
		var drafts []link.Draft
		for _, s := range slugs {
			drafts = append(drafts, draft(s))
		}
		results, err := links.CreateAll(ctx, acc, o, drafts)
		var made []*link.Link
		for _, r := range results {
			made, err = append(made, r.Link), errors.Join(err, r.Err)
		}
		return made, err
	}
	origin := func(n int) identity.Origin { return identity.Origin{Nonce: fmt.Sprint("n", n), At: time.Now()} }

	first, err := create(origin(1), "one")
	step("create", err, "|one")
	one := first[0]
	again := origin(2)
	_, err = create(again, "two", "three")
	step("create several links", err, "|three", "|two")
	_, err = create(again, "two", "three")
	step("retry a create after an attempt that may have died before its announcement", err, "|three", "|two")

	four, err := create(origin(4), "")
	step("create with a generated slug, which nobody can have visited", err)
	key := "|" + strings.ToLower(string(four[0].Slug))
	step("delete the link with a generated slug", links.Delete(ctx, "acc", four[0].ID, allow), key)
	_, err = create(origin(4), "")
	step("retry the create after a visitor may have seen the deleted link", err, key)
	purged := []string{"|three", "|two", key}
	slices.Sort(purged)

	_, err = links.Update(ctx, "acc", one.ID, allow, patch(link.Patch{func(l *link.Link) { l.Title = "t" }}))
	step("update", err, "|one")
	same, err := links.Update(ctx, "acc", one.ID, allow, patch(link.Patch{}))
	step("update that changes nothing", err, "|one")
	if same.Rev != 2 {
		t.Errorf("revision after an empty update = %d, want 2", same.Rev)
	}

	_, err = links.TakeDown(ctx, "|one", link.Takedown{ID: "tkd_1"})
	step("takedown", err, "|one")
	_, err = links.TakeDown(ctx, "|one", link.Takedown{ID: "tkd_1"})
	step("repeated takedown", err, "|one")
	step("lift", links.Lift(ctx, "|one", "tkd_1"), "|one")
	step("repeated lift", links.Lift(ctx, "|one", "tkd_1"), "|one")
	_, err = links.TakeDown(ctx, "|one", link.Takedown{ID: "tkd_2"})
	step("takedown", err, "|one")
	step("delete", links.Delete(ctx, "acc", one.ID, allow), "|one")
	gone := func(accountID string) error {
		if err := links.Delete(ctx, accountID, one.ID, allow); apierr.CodeOf(err) != apierr.LinkNotFound {
			return fmt.Errorf("repeated delete: %w, want LINK_NOT_FOUND", err)
		}
		return nil
	}
	step("retry a delete after an attempt that may have died before its announcement", gone("acc"), "|one")
	step("delete another account's deleted link", gone("other"))
	_, err = links.DeleteAll(ctx, "acc", []string{one.ID, "lnk_0000000000000000000000"})
	step("repeated delete of several links", err, "|one")
	step("lift a deleted link's takedown", links.Lift(ctx, "|one", "tkd_2"), "|one")
	_, err = links.Purge(ctx, "acc", link.Top, 10)
	step("purge", err, purged...)

	d := domains.New("acc", "go.example.com")
	step("claim, which does not assign the host", domains.Claim(ctx, d, 0))
	w.proofs.show("go.example.com", d)
	_, err = domains.Verify(ctx, "acc", d.ID)
	step("verify", err, "go.example.com")
	step("delete a domain", domains.Delete(ctx, "acc", d.ID, anyVersion), "go.example.com")

	suspended := tenant.Standing{State: tenant.Suspended, Version: 2}
	step("suspend", accounts.SetState(ctx, "acc", suspended), invalidation.AccountKey("acc"))
	step("repeated suspension", accounts.SetState(ctx, "acc", suspended), invalidation.AccountKey("acc"))
}

// If a commit's response is lost, the commit may have succeeded, so its change must be announced
// too.
func TestACommitOfUnknownOutcomeIsAnnounced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.create(t, "acc", 1)[0]
	w.heard.take()
	w.cloud.Firestore.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, LoseAnswer: true})
	title := patch(link.Patch{func(l *link.Link) { l.Title = "t" }})
	if _, err := w.links.Update(t.Context(), "acc", l.ID, func(int64) error { return nil }, title); err == nil {
		t.Fatal("Update with a lost response succeeded, want an error")
	}
	if got := w.heard.take(); len(got) != 1 {
		t.Errorf("announcements = %v, want the link's slug", got)
	}
}

// patch returns an edit that does not depend on the current link.
func patch(p link.Patch) func(*link.Link) (link.Patch, error) {
	return func(*link.Link) (link.Patch, error) { return p, nil }
}

// anyVersion allows a domain to be deleted at any revision.
func anyVersion(*customdomain.Domain) error { return nil }
