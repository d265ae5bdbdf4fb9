package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
)

// heard notes what was announced since it was last asked.
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

// What is not announced is stale on every replica until its cache entry ends. Each
// step below fails if the one call is deleted that announces it.
func TestEveryChangeIsAnnounced(t *testing.T) {
	t.Parallel()
	w, h := newWorld(t), &heard{}
	links := link.NewService(link.Options{Store: w.Store, Announcer: h, Now: w.clock})
	domains := customdomain.NewService(customdomain.Options{Store: w.Domains(), Announcer: h, Resolver: w.proofs, Now: w.clock})
	accounts := tenancy.NewService(tenancy.Options{Store: w.Store, Announcer: h, Links: links, Domains: domains, Now: w.clock})
	ctx, acc := t.Context(), &identity.Principal{AccountID: "acc"}
	step := func(what string, err error, want ...string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if diff := cmp.Diff(want, h.take()); diff != "" {
			t.Errorf("%s announced (-want +got):\n%s", what, diff)
		}
	}
	allow := func(int64) error { return nil }
	create := func(o identity.Origin, slugs ...string) ([]*link.Link, error) {
		var drafts []link.Draft
		for _, s := range slugs {
			drafts = append(drafts, draft(s))
		}
		results, err := links.Create(ctx, acc, o, drafts)
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
	step("create of several", err, "|three", "|two")
	_, err = create(again, "two", "three")
	step("the same request again, whose first try may have died before it announced", err, "|three", "|two")

	_, err = links.Update(ctx, "acc", one.ID, allow, link.Patch{Title: link.To("t")})
	step("update", err, "|one")
	_, err = links.Update(ctx, "acc", one.ID, allow, link.Patch{})
	step("update that changes nothing", err, "|one")

	_, err = links.TakeDown(ctx, "|one", link.Takedown{ID: "tkd_1"})
	step("takedown", err, "|one")
	_, err = links.TakeDown(ctx, "|one", link.Takedown{ID: "tkd_1"})
	step("the same takedown again", err, "|one")
	step("lift", links.Lift(ctx, "|one", "tkd_1"), "|one")
	step("the same lift again", links.Lift(ctx, "|one", "tkd_1"), "|one")
	_, err = links.TakeDown(ctx, "|one", link.Takedown{ID: "tkd_2"})
	step("takedown", err, "|one")
	step("delete", links.Delete(ctx, "acc", one.ID, allow), "|one")
	gone := func(accountID string) error {
		if err := links.Delete(ctx, accountID, one.ID, allow); apierr.CodeOf(err) != apierr.LinkNotFound {
			return fmt.Errorf("a repeated delete ends with %w", err)
		}
		return nil
	}
	step("the same delete again, whose first try may have died before it announced", gone("acc"), "|one")
	step("a delete of somebody else's deleted link", gone("other"))
	_, err = links.DeleteAll(ctx, "acc", []string{one.ID, "lnk_0000000000000000000000"})
	step("a repeated delete of several", err, "|one")
	step("lift of a deleted link's takedown", links.Lift(ctx, "|one", "tkd_2"), "|one")
	_, err = links.Purge(ctx, "acc", link.Top, 10)
	step("purge", err, "|three", "|two")

	d, err := domains.Claim(ctx, acc, "go.example.com", origin(3))
	step("claim, which gives nobody a host", err)
	w.proofs.show("go.example.com", d)
	_, err = domains.Verify(ctx, "acc", d.ID)
	step("verify", err, "go.example.com")
	step("delete of a domain", domains.Delete(ctx, "acc", d.ID), "go.example.com")

	suspended := tenant.Standing{State: tenant.Suspended, Version: 2}
	step("suspend", accounts.SetState(ctx, "acc", suspended), invalidation.AccountKey("acc"))
	step("the same suspension again", accounts.SetState(ctx, "acc", suspended), invalidation.AccountKey("acc"))
}

// A commit whose answer is lost may have happened, so it is announced too.
func TestACommitOfUnknownOutcomeIsAnnounced(t *testing.T) {
	t.Parallel()
	h := &heard{}
	links := link.NewService(link.Options{Store: lostAnswer{}, Announcer: h})
	if _, err := links.Update(t.Context(), "acc", "lnk_1", func(int64) error { return nil }, link.Patch{Title: link.To("t")}); err == nil {
		t.Fatal("a lost answer is no error")
	}
	if got := h.take(); len(got) != 1 {
		t.Errorf("announced %v, want the link's slug", got)
	}
}

// lostAnswer runs a transaction and then does not know how it ended.
type lostAnswer struct{ link.Store }

func (lostAnswer) Atomically(_ context.Context, _ string, fn func(tx link.Tx) error) error {
	if err := fn(oneLink{}); err != nil {
		return err
	}
	return errors.New("the connection broke")
}

type oneLink struct{ link.Tx }

func (oneLink) Links(...string) ([]*link.Link, error) {
	return []*link.Link{{ID: "lnk_1", AccountID: "acc", Slug: link.StoredSlug("one")}}, nil
}
func (oneLink) ExternalIDs(string, ...string) ([]string, error) { return []string{""}, nil }
func (oneLink) Tags(string, []string, []string) error           { return nil }
func (oneLink) Put(_, _ *link.Link) error                       { return nil }
