package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	fs "cloud.google.com/go/firestore"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/eventstest"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/links/internal/tenancy"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

type world struct {
	*Store
	cloud  *cloudtest.Cloud
	offset *atomic.Int64

	links   *link.Service
	domains *customdomain.Service
	proofs  *proofs
	heard   *heard
}

func (b world) Create(ctx context.Context, account string, o identity.Origin, drafts []link.Draft) ([]link.Result, error) {
	return b.links.CreateAll(ctx, &identity.Principal{AccountID: account}, o, drafts)
}

func (b world) clock() time.Time { return time.Now().Add(time.Duration(b.offset.Load())) }

func newWorld(t testing.TB) world {
	t.Helper()
	text, err := os.ReadFile("../../firestore.indexes.json")
	if err != nil {
		t.Fatal(err)
	}
	text = New(record.Open(nil, record.Options{}), Shown{}).Records.Indexes(text)
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{text, tags.Indexes, outbox.Indexes}, Complete: true, Rare: []string{"linkAccounts.lookAt"}}) // changed only by operators
	// Under the race detector, a full commit can take up to a minute.
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: cloudtest.Project, Endpoint: cloud.Endpoint, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Identity(t.Context()); err != nil { // as a service does before writing its first record
		t.Fatal(err)
	}
	b := world{cloud: cloud, offset: new(atomic.Int64), heard: &heard{}}
	records := record.Open(db, record.Options{Outbox: outbox.New(db, nil, b.clock), Announce: b.heard.Announce, Now: b.clock})
	b.Store = New(records, Shown{
		Link: func(l *link.Link) any { return l.ID }, Domain: func(d *customdomain.Domain) any { return d.ID },
	})
	b.links = link.NewService(link.Options{Store: b.Store, Now: b.clock})
	b.proofs = &proofs{texts: map[string][]string{}, down: map[string]bool{}, asked: map[string]int{}}
	b.domains = customdomain.NewService(customdomain.Options{Store: b.Domains(), Texts: b.proofs.Texts, Now: b.clock})
	return b
}

func draft(slug string) link.Draft {
	return link.Draft{
		Link:  link.Link{Slug: link.Slug(slug), Destination: link.URL{Given: "https://a.example", Location: "https://a.example/"}},
		Ready: func(*link.Link) error { return nil },
	}
}

func (b world) create(t testing.TB, account string, n int) []*link.Link {
	t.Helper()
	drafts := make([]link.Draft, n)
	for i := range drafts {
		drafts[i] = draft("")
	}
	results, err := b.Create(t.Context(), account, identity.Origin{Nonce: fmt.Sprint(account, time.Now().UnixNano()), At: time.Now()}, drafts)
	if err != nil {
		t.Fatal(err)
	}
	var out []*link.Link
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		out = append(out, r.Link)
	}
	return out
}

func TestCreateGivesEveryLinkOfOneInstantItsOwnPlace(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	at := time.Now()
	var mu sync.Mutex
	seqs, slugs := map[int64]bool{}, map[string]bool{}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			results, err := b.Create(t.Context(), "acc", identity.Origin{Nonce: fmt.Sprint("n", i), At: at}, []link.Draft{draft(""), draft("")})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, r := range results {
				seqs[r.Link.Seq], slugs[string(r.Link.Slug)] = true, true
			}
		})
	}
	wg.Wait()
	page, more, err := b.List(t.Context(), link.Query{AccountID: "acc", Before: link.Top, Limit: 100})
	if err != nil || more || len(page) != 24 || len(seqs) != 24 || len(slugs) != 24 {
		t.Errorf("%d links in the list, %d distinct positions, %d slugs, %v; want 24 of each", len(page), len(seqs), len(slugs), err)
	}
}

func TestCreateFindsItsOwnRecordWhenTriedAgain(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	o := identity.Origin{Nonce: "n", At: time.Now()}
	// Another link takes the position that the request would have got.
	if _, err := b.Create(t.Context(), "acc", identity.Origin{Nonce: "other", At: o.At}, []link.Draft{draft("")}); err != nil {
		t.Fatal(err)
	}
	drafts := []link.Draft{draft("mine"), draft(""), draft("mine")}
	first, err := b.Create(t.Context(), "acc", o, drafts)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Create(t.Context(), "acc", o, drafts)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if first[i].Err != nil || again[i].Err != nil || first[i].Link.ID != again[i].Link.ID || first[i].Link.Slug != again[i].Link.Slug {
			t.Errorf("draft %d: first %+v, retry %+v; want the same link", i, first[i], again[i])
		}
	}
	if apierr.CodeOf(first[2].Err) != apierr.SlugTaken || apierr.CodeOf(again[2].Err) != apierr.SlugTaken {
		t.Errorf("second of two identical slugs: first %v, retry %v; want SLUG_TAKEN", first[2].Err, again[2].Err)
	}
	if page, _, _ := b.List(t.Context(), link.Query{AccountID: "acc", Before: link.Top, Limit: 100}); len(page) != 3 {
		t.Errorf("got %d links, want 3", len(page))
	}
}

func TestCreateSurvivesLostAnswers(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.cloud.Firestore.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Every: 3, LoseAnswer: true, Code: codes.Unavailable})
	for i := range 30 {
		results, err := b.Create(t.Context(), "acc", identity.Origin{Nonce: fmt.Sprint("n", i), At: time.Now()}, []link.Draft{draft(fmt.Sprint("s", i))})
		if err != nil || results[0].Err != nil {
			t.Fatalf("create %d: %v, %v", i, results, err)
		}
	}
	b.cloud.Firestore.Faults().Clear()
	if page, _, _ := b.List(t.Context(), link.Query{AccountID: "acc", Before: link.Top, Limit: 100}); len(page) != 30 {
		t.Errorf("got %d links, want 30", len(page))
	}
}

var errOvertaken = errors.New("overtaken")

func tally(id string, day link.Day, clicks ...link.Click) *link.Tally {
	t := &link.Tally{LinkID: id, Day: day}
	for _, c := range clicks {
		t.Add(c, 1)
	}
	return t
}

func TestCountWritesLinksDaysAndProgressTogether(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	c := b.Counts(0, 1, errOvertaken)
	links := b.create(t, "acc", 2)
	day := link.DayOf(time.Now())
	p, err := c.Progress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	marks := map[string]link.Mark{"p": {Batch: 3, Total: 7, Day: day}}
	tallies := []*link.Tally{
		tally(links[0].ID, day-1, link.Click{Device: link.Mobile}),
		tally(links[0].ID, day, link.Click{Referrer: "a.example", Country: "DE", Rule: "Wien"}, link.Click{Referrer: "b.c.example"}),
		tally("lnk_gone", day, link.Click{}),
	}
	next, _, err := c.Count(t.Context(), p, marks, tallies)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Count(t.Context(), p, marks, tallies); !errors.Is(err, errOvertaken) {
		t.Errorf("Count with stale progress: %v, want errOvertaken", err)
	}
	stored, err := c.Progress(t.Context())
	if diff := cmp.Diff(next, stored); diff != "" || err != nil {
		t.Errorf("progress, %[2]v (-want +got):\n%[1]s", diff, err)
	}
	if l, err := b.links.Get(t.Context(), "acc", links[0].ID); err != nil || l.Clicks != 3 || l.Rev != 1 {
		t.Errorf("link = %+v, %v; want 3 clicks, revision 1", l, err)
	}
	st, err := b.Stats(t.Context(), links[0].ID, day-1, day+1)
	want := link.Stats{Total: 3, Days: []int64{1, 2, 0}, Shares: link.Shares{
		Referrers: []link.Share{{Name: "", Clicks: 1}, {Name: "a.example", Clicks: 1}, {Name: "b.c.example", Clicks: 1}},
		Countries: []link.Share{{Name: "", Clicks: 2}, {Name: "DE", Clicks: 1}}, Devices: []link.Share{{Name: "other", Clicks: 2}, {Name: "mobile", Clicks: 1}},
		Rules: []link.Share{{Name: "", Clicks: 2}, {Name: "Wien", Clicks: 1}},
	}}
	if diff := cmp.Diff(want, st); diff != "" || err != nil {
		t.Errorf("stats, %[2]v (-want +got):\n%[1]s", diff, err)
	}
	if _, err := b.links.Get(t.Context(), "acc", "lnk_gone"); apierr.CodeOf(err) != apierr.LinkNotFound {
		t.Errorf("get a deleted link after counting: %v, want LINK_NOT_FOUND", err)
	}
}

func TestCountOfManyLinksSurvivesAnInterruption(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	c := b.Counts(0, 1, errOvertaken)
	day := link.DayOf(time.Now())
	var tallies []*link.Tally
	links := b.create(t, "acc", 2*linksPerCommit+50)
	ids := map[string]bool{}
	for _, l := range links {
		ids[l.ID] = true
		tallies = append(tallies, tally(l.ID, day, link.Click{}))
	}
	p, err := c.Progress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	marks := map[string]link.Mark{"p": {Batch: 1, Total: int64(len(links)), Day: day}}
	// Committing the second part fails, as if the process had died at this point.
	remove := b.cloud.Firestore.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Every: 3, Code: codes.PermissionDenied, Times: 1})
	if _, _, err := c.Count(t.Context(), p, marks, tallies); err == nil {
		t.Fatal("Count succeeded despite the failed commit, want an error")
	}
	remove()
	successor := b.Counts(0, 1, errOvertaken)
	for range 2 { // the second round must not count anything twice
		if p, err = successor.Progress(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if p.Producers["p"].Batch != 1 {
		t.Errorf("progress = %+v, want batch 1", p)
	}
	total := int64(0)
	for before := link.Top; ; {
		page, more, err := b.List(t.Context(), link.Query{AccountID: "acc", Before: before, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page {
			total += l.Clicks
			before = l.Seq
		}
		if !more {
			break
		}
	}
	if total != int64(len(links)) {
		t.Errorf("got %d clicks, want %d", total, len(links))
	}
}

// Callers cannot see these limits until they reach them, so the pages about statistics and domains
// must list them.
func TestGuideNamesTheBoundsThatCallersMeet(t *testing.T) {
	t.Parallel()
	text := ""
	for _, page := range []string{"statistics", "domains"} {
		guide, err := os.ReadFile("../../../../docs/api/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		text += strings.Join(strings.Fields(string(guide)), " ")
	}
	days := func(d time.Duration) int { return int(d / (24 * time.Hour)) }
	for _, sentence := range []string{
		fmt.Sprintf("Days are kept for %d days; the link's total keeps every click.", days(dayMemory)),
		fmt.Sprintf("One day of one link names at most %d referring hosts; clicks from further ones are counted under `%s`.", maxReferrers, OtherNames),
		fmt.Sprintf("It also names at most %d rules; clicks of further ones are counted under `%s` too.", maxRuleNames, OtherNames),
		fmt.Sprintf("After %d days without the record the domain **lapses**", days(customdomain.Lapse)),
	} {
		if !strings.Contains(text, sentence) {
			t.Errorf("docs/api/statistics.md and docs/api/domains.md do not contain the sentence %q", sentence)
		}
	}
}

func TestCountBoundsTheNamesOfADay(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	id, day := b.create(t, "acc", 1)[0].ID, link.DayOf(time.Now())
	for round := range 3 {
		c := b.Counts(0, 1, errOvertaken) // like a new process
		p, err := c.Progress(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sum := &link.Tally{LinkID: id, Day: day}
		for i := range 70 {
			sum.Add(link.Click{Referrer: fmt.Sprintf("h%d.example", round*50+i), Rule: fmt.Sprint("r", round*50+i)}, 1)
		}
		if _, _, err := c.Count(t.Context(), p, map[string]link.Mark{"p": {Batch: int64(round + 1)}}, []*link.Tally{sum}); err != nil {
			t.Fatal(err)
		}
	}
	st, err := b.Stats(t.Context(), id, day, day)
	if err != nil || st.Total != 210 || len(st.Referrers) != maxReferrers+1 || len(st.Rules) != maxRuleNames+1 {
		t.Fatalf("%d clicks, %d referrers, %d rules, %v; want 210 and the maximum numbers of names", st.Total, len(st.Referrers), len(st.Rules), err)
	}
	for _, shares := range [][]link.Share{st.Referrers, st.Rules} {
		sum := int64(0)
		for _, r := range shares {
			sum += r.Clicks
		}
		if sum != 210 || shares[0].Name != OtherNames {
			t.Errorf("the clicks by name add up to %d, first is %v; want 210, %s", sum, shares[0], OtherNames)
		}
	}
}

// A visitor chooses the referring host, and also the country if a proxy forwards the visitor's own
// header. An owner chooses rule names. Firestore accepts 500 changed counts per document in
// one commit.
func TestADayThatNamesAllItCanIsCounted(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	id, day := b.create(t, "acc", 1)[0].ID, link.DayOf(time.Now())
	c := b.Counts(0, 1, errOvertaken)
	p, err := c.Progress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum, clicks := &link.Tally{LinkID: id, Day: day}, int64(0)
	for i := range 26 * 26 {
		country := link.Country(string([]byte{byte('a' + i/26), byte('a' + i%26)}))
		sum.Add(link.Click{Referrer: fmt.Sprintf("h%d.example", i), Country: country, Device: link.Device(i % 8), Rule: fmt.Sprint("r", i)}, 1)
		clicks++
	}
	_, refused, err := c.Count(t.Context(), p, map[string]link.Mark{"p": {Batch: 1}}, []*link.Tally{sum})
	if err != nil || refused != 0 {
		t.Fatalf("Count: %d clicks rejected, %v; want none", refused, err)
	}
	if st, err := b.Stats(t.Context(), id, day, day); err != nil || st.Total != clicks || len(st.Countries) < 249 {
		t.Errorf("counted %d of %d clicks, %d countries, %v; want all clicks and at least 249 countries", st.Total, clicks, len(st.Countries), err)
	}
}

// proofs is a resolver that returns the TXT records set by tests.
type proofs struct {
	mu    sync.Mutex
	texts map[string][]string
	down  map[string]bool // names with failing servers
	asked map[string]int
}

func (p *proofs) Texts(_ context.Context, name string) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[name]++
	if p.down[name] {
		return nil, errors.New("SERVFAIL")
	}
	return p.texts[name], nil
}

// show publishes the records for the given claims, and removes all other records from the host
// name.
func (p *proofs) show(hostname string, claims ...*customdomain.Domain) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.texts[customdomain.RecordName(hostname)] = nil
	for _, d := range claims {
		_, value := d.Record()
		p.texts[customdomain.RecordName(hostname)] = append(p.texts[customdomain.RecordName(hostname)], value)
	}
}

func (b world) claim(t *testing.T, account, hostname string) *customdomain.Domain {
	t.Helper()
	d := b.domains.New(account, hostname)
	if err := b.domains.Claim(t.Context(), d, 0); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDomainsBelongToTheFirstThatProvesThem(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	const name = "go.example.com"
	a, z := b.claim(t, "a", name), b.claim(t, "z", name)
	claimAgain := func(account string) error {
		return b.domains.Claim(t.Context(), b.domains.New(account, name), 0)
	}
	verify := func(account string, d *customdomain.Domain) error {
		_, err := b.domains.Verify(t.Context(), account, d.ID)
		return err
	}
	want := func(what string, err error, code apierr.Code) {
		t.Helper()
		if apierr.CodeOf(err) != code {
			t.Errorf("%s: %v, want %q", what, err, code)
		}
	}
	want("second claim by one account", claimAgain("a"), apierr.DomainTaken)
	want("check without a record", verify("a", a), "")
	want("check on another account's claim", verify("a", z), apierr.DomainNotFound)
	b.proofs.show(name, z)
	want("first proof", verify("z", z), "")
	want("slower claim without a record", verify("a", a), apierr.DomainTaken)
	b.proofs.show(name, a, z)
	want("slower claim with a record", verify("a", a), apierr.DomainTaken)
	want("claim after the proof", claimAgain("late"), apierr.DomainTaken)
	if id, found, err := b.Host(t.Context(), name); id.DomainID != z.ID || !found || err != nil {
		t.Errorf("owner of the host = %q, %v; want %q", id.DomainID, err, z.ID)
	}

	on := draft("s")
	on.DomainID = z.ID
	create := func(account, nonce string) error {
		results, err := b.Create(t.Context(), account, identity.Origin{Nonce: nonce, At: b.clock()}, []link.Draft{on})
		if err == nil {
			err = results[0].Err
		}
		return err
	}
	want("link on another account's domain", create("a", "n1"), apierr.DomainNotFound)
	want("link on the account's domain", create("z", "n2"), "")
	want("deleting a domain in use", b.domains.Delete(t.Context(), "z", z.ID, anyVersion), apierr.DomainInUse)

	// The proof is removed. Nothing changes for a week. After that, another account can verify the
	// name.
	b.offset.Add(int64(25 * time.Hour))
	b.proofs.show(name)
	if err := b.domains.RecheckDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err := b.domains.Get(t.Context(), "z", z.ID); err != nil || d.FailingSince.IsZero() || d.Failure == "" || !d.Verified(b.clock()) {
		t.Fatalf("domain after the first check without a proof = %+v, %v; want it failing and still verified", d, err)
	}
	b.offset.Add(int64(6 * 24 * time.Hour))
	b.proofs.show(name, a)
	want("another account's proof within the week", verify("a", a), apierr.DomainTaken)
	b.offset.Add(int64(24 * time.Hour))
	want("link on a lapsed domain", create("z", "n3"), apierr.DomainNotVerified)
	want("another account's proof after the week", verify("a", a), "")
	if id, _, _ := b.Host(t.Context(), name); id.DomainID != a.ID {
		t.Errorf("owner of the host = %q, want %q", id.DomainID, a.ID)
	}
	want("checking a lost domain without a record", verify("z", z), "")
	want("deleting the new owner's domain", b.domains.Delete(t.Context(), "a", a.ID, anyVersion), "")
	if _, found, _ := b.Host(t.Context(), name); found {
		t.Error("the host of the deleted domain still has an owner, want none")
	}
}

// Neither a domain that cannot be verified nor a hundred domains with failing name servers should
// prevent other accounts' domains from being checked.
func TestRecheckDuePassesOverDomainsThatCannotBeChecked(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	prove := func(d *customdomain.Domain) {
		t.Helper()
		b.proofs.show(d.Hostname, d)
		if _, err := b.domains.Verify(t.Context(), d.AccountID, d.ID); err != nil {
			t.Fatal(err)
		}
	}
	lost, taker := b.claim(t, "a", "lost.example.com"), b.claim(t, "b", "lost.example.com")
	prove(lost)
	var broken []*customdomain.Domain
	for i := range 120 {
		d := b.claim(t, "c", fmt.Sprintf("broken%d.example.com", i))
		prove(d)
		broken = append(broken, d)
	}
	b.offset.Add(int64(25 * time.Hour))
	b.proofs.show("lost.example.com")
	_ = b.domains.RecheckDue(t.Context())
	b.offset.Add(int64(8 * 24 * time.Hour))
	prove(taker)
	b.proofs.show("lost.example.com", lost, taker) // the check on the lost domain now returns DOMAIN_TAKEN
	for _, d := range broken {
		b.proofs.down[customdomain.RecordName(d.Hostname)] = true
	}
	healthy := b.claim(t, "d", "healthy.example.com")
	prove(healthy)
	b.offset.Add(int64(25 * time.Hour))
	checked := b.clock()
	for range 2 {
		if err := b.domains.RecheckDue(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range append(broken, lost, taker, healthy) {
		got, err := b.domains.Get(t.Context(), d.AccountID, d.ID)
		if err != nil || got.CheckedAt.Before(checked) || !got.NextCheckAt.After(b.clock()) {
			t.Fatalf("%s: checked at %v, next check at %v, %v; want it checked in this round", d.Hostname, got.CheckedAt, got.NextCheckAt, err)
		}
	}
	if n := b.proofs.asked[customdomain.RecordName(broken[0].Hostname)]; n > 5 {
		t.Errorf("a failing name server got %d requests, want at most 5", n)
	}
	if d, _ := b.domains.Get(t.Context(), "a", lost.ID); d.Verified(b.clock()) || !strings.Contains(d.Failure, "Another account") {
		t.Errorf("lost domain = %+v, want it unverified because of another account", d)
	}
	if d, _ := b.domains.Get(t.Context(), "c", broken[0].ID); !d.Verified(b.clock()) || !strings.Contains(d.Failure, "did not answer") {
		t.Errorf("domain with failing name servers = %+v, want it verified with a failure", d)
	}
}

func TestDueDomainsPutsOffWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	const bucket = 0
	put := func(id string, fields map[string]any) {
		t.Helper()
		if _, err := b.db.Ref("domains", id).Set(t.Context(), fields); err != nil {
			t.Fatal(err)
		}
	}
	due := b.clock().Add(-time.Hour)
	for i := range 5 {
		put(fmt.Sprint("dom_broken", i), map[string]any{"hostname": 7, "due": map[string]any{"bucket": bucket, "at": due}})
		put(fmt.Sprint("dom_good", i), map[string]any{"hostname": "x.example.com", "due": map[string]any{"bucket": bucket, "at": due.Add(time.Minute)}})
	}
	if found, err := b.Domains().Due(t.Context()); err == nil || len(found) != 5 {
		t.Errorf("first Due = %d domains, %v; want the five readable domains and an error about the others", len(found), err)
	}
	if found, err := b.Domains().Due(t.Context()); err != nil || len(found) != 5 {
		t.Errorf("second Due = %d domains, %v; want the five readable domains, because the others are postponed", len(found), err)
	}
}

func TestQuotasHoldUnderRacesAndReplay(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	limited := &identity.Principal{AccountID: "acc", Quotas: identity.Quotas{Links: 5, Domains: 2}}
	var mu sync.Mutex
	made, made2 := []identity.Origin{}, 0
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			o := identity.Origin{Nonce: fmt.Sprint("n", i), At: time.Now()}
			for {
				results, err := b.links.CreateAll(t.Context(), limited, o, []link.Draft{draft("")})
				if err != nil {
					continue // after too many conflicts, the caller is asked to retry
				}
				if results[0].Err == nil {
					mu.Lock()
					made = append(made, o)
					mu.Unlock()
				} else if apierr.CodeOf(results[0].Err) != apierr.QuotaExceeded {
					t.Error(results[0].Err)
				}
				return
			}
		})
	}
	for i := range 20 {
		wg.Go(func() {
			for {
				err := b.domains.Claim(t.Context(), b.domains.New(limited.AccountID, fmt.Sprintf("d%d.example.com", i)), limited.Quotas.Domains)
				if code := apierr.CodeOf(err); code == apierr.Unavailable || code == apierr.RateLimited {
					continue
				}
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					made2++
				} else if apierr.CodeOf(err) != apierr.QuotaExceeded {
					t.Error(err)
				}
				return
			}
		})
	}
	wg.Wait()
	if len(made) != 5 || made2 != 2 {
		t.Fatalf("created %d links and %d domains, want 5 and 2", len(made), made2)
	}
	for _, o := range made {
		if results, err := b.links.CreateAll(t.Context(), limited, o, []link.Draft{draft("")}); err != nil || results[0].Err != nil {
			t.Errorf("retrying a successful create: %v, %v; want the same link", results, err)
		}
	}
	b.create(t, "free", 1)
	of := b.db.Collection(quota.Collection).Where("accountId", "==", "free")
	if found, err := b.db.Query(t.Context(), "look", of); err != nil || len(found) > 0 {
		t.Errorf("got %d documents about an account without a limit, %v; want none", len(found), err)
	}
}

func TestSweepTagsRemovesTagsThatNothingCarries(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	make := func(tags ...string) *link.Link {
		d := draft("")
		d.Tags = tags
		results, err := b.Create(t.Context(), "acc", identity.Origin{Nonce: fmt.Sprint(tags), At: b.clock()}, []link.Draft{d})
		if err != nil || results[0].Err != nil {
			t.Fatal(results, err)
		}
		return results[0].Link
	}
	names := func() []string {
		page, _, err := b.links.Tags(t.Context(), "acc", "", "", 100)
		if err != nil {
			t.Fatal(err)
		}
		return page
	}
	always := func(int64) error { return nil }
	first, _ := make("gone", "Kept"), make("kept", "other")
	if err := b.links.Delete(t.Context(), "acc", first.ID, always); err != nil {
		t.Fatal(err)
	}
	b.offset.Add(int64(24 * time.Hour))
	if err := b.SweepTags(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Kept", "other"}, names()); diff != "" {
		t.Errorf("tags after a day (-want +got):\n%s", diff)
	}
	second := make("gone")
	if diff := cmp.Diff([]string{"gone", "Kept", "other"}, names()); diff != "" {
		t.Errorf("tags after one is used again (-want +got):\n%s", diff)
	}
	if _, err := b.links.Update(t.Context(), "acc", second.ID, always, patch(link.Patch{func(l *link.Link) { l.Tags = nil }})); err != nil {
		t.Fatal(err)
	}
	b.offset.Add(int64(24 * time.Hour))
	if err := b.SweepTags(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Kept", "other"}, names()); diff != "" {
		t.Errorf("tags after a PATCH removed one (-want +got):\n%s", diff)
	}
}

func TestIndexedFieldsAreSmall(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	big := draft("big")
	big.Destination = link.URL{Given: "https://a.example/" + strings.Repeat("ü", 4000), Location: "https://a.example/" + strings.Repeat("%C3%BC", 4000)}
	long := strings.Repeat("ü", 1000)
	big.Title, big.OpenGraph = long[:1000], link.OpenGraph{Title: &long, Description: &long, Image: &big.Destination}
	results, err := b.Create(t.Context(), "acc", identity.Origin{Nonce: "n", At: time.Now()}, []link.Draft{big})
	if err != nil || results[0].Err != nil {
		t.Fatalf("create a link with long fields: %v, %v", results, err)
	}
}

// TestEveryWriteHasItsEvent checks that every transaction method that writes a record has an event
// parameter.
func TestEveryWriteHasItsEvent(t *testing.T) {
	t.Parallel()
	quiet := []string{"PutSlug", "SetOwner", "ClearOwner", "ClearStats", "SetPages"} // these methods do not write any API records
	reads := []string{"Room", "Tags", "Announce"}
	for _, tx := range []reflect.Type{reflect.TypeFor[link.Tx](), reflect.TypeFor[customdomain.Tx]()} {
		for m := range tx.NumMethod() {
			f := tx.Method(m)
			in := f.Type.NumIn()
			switch {
			case slices.Contains(quiet, f.Name), slices.Contains(reads, f.Name):
			case f.Type.NumOut() > 1: // a method that reads
			case in == 0 || f.Type.In(in-1) != reflect.TypeFor[events.Type]():
				t.Errorf("%s.%s writes a record but has no event parameter, want one", tx, f.Name)
			}
		}
	}
}

// long returns a draft of a link with the maximum number of search terms.
func long(i int) link.Draft {
	var path strings.Builder
	for word := range 370 {
		path.WriteByte('/')
		for letter := range 4 {
			path.WriteRune(rune(0x20000 + (i*997+word*131+letter*17)%40000))
		}
	}
	return link.Draft{Link: link.Link{
		Destination: link.URL{Given: "https://a.example" + path.String(), Location: "https://a.example" + (&url.URL{Path: path.String()}).EscapedPath()},
	}}
}

// told counts the account's events of the given type.
func (b world) told(t *testing.T, account string, what events.Type) (n int) {
	t.Helper()
	for _, e := range eventstest.All(t, b.db.DB) {
		if e.AccountID == account && e.Type == string(what) {
			n++
		}
	}
	return n
}

// A hundred links with the maximum number of search terms do not fit into one commit. The result
// for each item must not depend on how they are divided into commits.
func TestCreateOfManyLongAddressesIsExact(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	drafts := make([]link.Draft, 100)
	for i := range drafts {
		drafts[i] = long(i)
	}
	drafts[5].Slug, drafts[95].Slug = link.Slug("one"), link.Slug("ONE")
	drafts[6].ExternalID, drafts[96].ExternalID = "row 6", "row 6"
	acc := &identity.Principal{AccountID: "acc", Quotas: identity.Quotas{Links: 90}}
	o := identity.Origin{Nonce: "n", At: time.Now()}
	// The process dies after the third commit. A repeated request must return the correct outcome
	// for each item.
	store := &stopping{Store: b.Store, after: 3}
	links := link.NewService(link.Options{Store: store, Now: b.clock})
	if _, err := links.CreateAll(t.Context(), acc, o, drafts); !errors.Is(err, errStopped) {
		t.Fatalf("CreateAll = %v, want errStopped", err)
	}
	some, _, err := b.List(t.Context(), link.Query{AccountID: "acc", Before: link.Top, Limit: 100})
	if err != nil || len(some) == 0 || len(some) > 80 {
		t.Fatalf("%d links after three commits, %v; want 1 to 80", len(some), err)
	}
	store.after = 1000
	for try := range 2 {
		results, err := links.CreateAll(t.Context(), acc, o, drafts)
		if err != nil {
			t.Fatal(err)
		}
		got := map[apierr.Code]int{}
		for i, r := range results {
			code := apierr.CodeOf(r.Err)
			got[code]++
			switch {
			case i == 95 && code != apierr.SlugTaken, i == 96 && code != apierr.ExternalIDTaken, i < 90 && code != "":
				t.Errorf("try %d: unexpected result for item %d: %v", try, i, r.Err)
			case r.Link != nil && r.Link.Destination != drafts[i].Destination:
				t.Errorf("try %d: item %d has URL %s, want %s", try, i, r.Link.Destination, drafts[i].Destination)
			}
		}
		if diff := cmp.Diff(map[apierr.Code]int{"": 90, apierr.SlugTaken: 1, apierr.ExternalIDTaken: 1, apierr.QuotaExceeded: 8}, got); diff != "" {
			t.Errorf("try %d: items by error code (-want +got):\n%s", try, diff)
		}
	}
	page, _, err := b.List(t.Context(), link.Query{AccountID: "acc", Before: link.Top, Limit: 100, Whole: true})
	if err != nil || len(page) != 90 {
		t.Fatalf("got %d links, %v; want 90", len(page), err)
	}
	for i, l := range page {
		if l.Destination != drafts[89-i].Destination {
			t.Errorf("link %d in the list has URL %s, want %s", i, l.Destination, drafts[89-i].Destination)
		}
		// A search must find the link by the same words as if it had been created on its own.
		if words := l.Words(); i%20 == 0 {
			found, _, err := b.List(t.Context(), link.Query{AccountID: "acc", Before: link.Top, Limit: 10, Words: []string{words[len(words)-4]}})
			if err != nil || !slices.ContainsFunc(found, func(f *link.Link) bool { return f.ID == l.ID }) {
				t.Errorf("link %d in the list is not found by one of its last words: %v", i, err)
			}
		}
	}
	if n := b.told(t, "acc", events.LinkCreated); n != 90 {
		t.Errorf("got %d events, want 90", n)
	}
	if store.refused > 0 {
		t.Errorf("%d commits were rejected, want 0: their estimated size is too low", store.refused)
	}
}

var errStopped = errors.New("stopped")

// stopping is a store that fails after a given number of commits.
type stopping struct {
	*Store
	after   int
	refused int // number of commits
}

func (s *stopping) Atomically(ctx context.Context, what string, fn func(tx link.Tx) error) error {
	if s.after--; s.after < 0 {
		return errStopped
	}
	err := s.Store.Atomically(ctx, what, fn)
	if errors.Is(err, link.ErrRefused) {
		s.refused++
	}
	return err
}

// refusing is a store that rejects a commit if it changes the link with the given ID, or more than
// most links.
type refusing struct {
	*Store
	id   string
	most int
}

func (s refusing) Atomically(ctx context.Context, what string, fn func(tx link.Tx) error) error {
	return s.Store.Atomically(ctx, what, func(tx link.Tx) error {
		w := &watched{Tx: tx}
		if err := fn(w); err != nil {
			return err
		}
		if len(w.ids) > s.most || slices.Contains(w.ids, s.id) {
			return fmt.Errorf("%w: %d links", link.ErrRefused, len(w.ids))
		}
		return nil
	})
}

func (s refusing) Add(ctx context.Context, _ int, links ...*link.Link) error {
	return s.Atomically(ctx, "add", func(tx link.Tx) error {
		for _, l := range links {
			tx.Add(l, false, events.LinkCreated)
		}
		return nil
	})
}

// watched records the links that a transaction changes.
type watched struct {
	link.Tx
	ids []string
}

func (w *watched) Add(l *link.Link, over bool, what events.Type) {
	w.ids = append(w.ids, l.ID)
	w.Tx.Add(l, over, what)
}

func (w *watched) Put(before, after *link.Link, what events.Type) {
	w.ids = append(w.ids, after.ID)
	w.Tx.Put(before, after, what)
}

func (w *watched) Remove(l *link.Link, slug *link.SlugRecord, what events.Type) {
	w.ids = append(w.ids, l.ID)
	w.Tx.Remove(l, slug, what)
}

func TestOneLinkThatIsRefusedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	links := b.create(t, "acc", 40)
	ids := make([]string, len(links))
	for i, l := range links {
		ids[i] = l.ID
	}
	poisoned := ids[17]
	service := link.NewService(link.Options{Store: refusing{b.Store, poisoned, 7}, Now: b.clock})
	each := func(what string, results []link.Result, err error, event events.Type) {
		t.Helper()
		if err != nil || len(results) != len(ids) {
			t.Fatalf("%s: %d results, %v; want %d", what, len(results), err, len(ids))
		}
		for i, r := range results {
			if refused := errors.Is(r.Err, link.ErrRefused); refused != (ids[i] == poisoned) || !refused && (r.Err != nil || r.Link.ID != ids[i]) {
				t.Errorf("%s: item %d: %v, want an error only for the rejected link", what, i, r.Err)
			}
		}
		if n := b.told(t, "acc", event); n != len(ids)-1 {
			t.Errorf("%s: got %d events, want %d", what, n, len(ids)-1)
		}
	}
	updated, err := service.UpdateAll(t.Context(), "acc", ids, link.Set{Patch: link.Patch{func(l *link.Link) { l.Archived = true }}})
	each("update", updated, err, events.LinkUpdated)
	deleted, err := service.DeleteAll(t.Context(), "acc", ids)
	each("delete", deleted, err, events.LinkDeleted)

	o := identity.Origin{Nonce: "again", At: time.Now()}
	drafts := make([]link.Draft, 40)
	for i := range drafts {
		drafts[i] = draft("")
	}
	never := link.ID("other", o.At.UTC().UnixMicro()+17)
	service = link.NewService(link.Options{Store: refusing{b.Store, never, 7}, Now: b.clock})
	made, err := service.CreateAll(t.Context(), &identity.Principal{AccountID: "other"}, o, drafts)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range made {
		if refused := errors.Is(r.Err, link.ErrRefused); refused != (i == 17) {
			t.Errorf("create: item %d: %v, want an error only for item 17", i, r.Err)
		}
	}
	if n := b.told(t, "other", events.LinkCreated); n != 39 {
		t.Errorf("got %d create events, want 39", n)
	}
}

// Erasing an account with such a link removes everything else, but does not report that the erasure
// is complete.
func TestErasurePassesOverALinkThatIsRefused(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	links := b.create(t, "acc", 250)
	poisoned := links[180].ID // on the second page
	holder := func(s link.Store) *keeper.Keeper {
		return tenancy.New(tenancy.Options{Standings: Standings(b.db.DB), Store: b.Store, Announce: b.heard.Announce, Links: link.NewService(link.Options{Store: s, Now: b.clock}), Domains: b.domains, Now: b.clock})
	}
	ctx, stop := context.WithCancel(t.Context())
	accounts := holder(refusing{b.Store, poisoned, 60})
	if err := accounts.SetState(ctx, "acc", tenant.Standing{State: tenant.Deleting, Version: 2}); err != nil {
		t.Fatal(err)
	}
	b.offset.Add(int64(time.Minute))
	var wg sync.WaitGroup
	wg.Go(func() { _ = accounts.Run(ctx) })
	left := func() []*link.Link {
		page, _, err := b.List(t.Context(), link.Query{AccountID: "acc", Before: link.Top, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return page
	}
	for deadline := time.Now().Add(time.Minute); len(left()) > 1 && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	wg.Wait()
	if l := left(); len(l) != 1 || l[0].ID != poisoned {
		t.Fatalf("got %d links, want only the link that cannot be deleted", len(l))
	}
	if done, err := accounts.Erased(t.Context(), "acc"); done || err != nil {
		t.Errorf("Erased with one link left = %v, %v; want false", done, err)
	}
	// Once the cause is fixed, the erasure completes without another call because it retries a
	// minute after a failure.
	b.offset.Add(int64(time.Minute))
	ctx, stop = context.WithCancel(t.Context())
	defer stop()
	accounts = holder(b.Store)
	wg.Go(func() { _ = accounts.Run(ctx) })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if done, err := accounts.Erased(t.Context(), "acc"); done && err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("not erased after a minute: %v, %d links left", err, len(left()))
		}
	}
	stop()
	wg.Wait()
}

// Erasing an unreadable link does not block other links and keeps its takedown. It does not change
// other links' slugs, no matter what the damaged record contains.
func TestALinkThatCannotBeReadLeavesWithItsAccount(t *testing.T) {
	t.Parallel()
	b, ctx := newWorld(t), t.Context()
	made, err := b.Create(ctx, "other", identity.Origin{Nonce: "n", At: time.Now()}, []link.Draft{draft("theirs")})
	if err != nil || made[0].Err != nil {
		t.Fatal(err, made[0].Err)
	}
	mine := b.create(t, "acc", 3)
	down := link.Takedown{ID: "tkd_1", Reason: "phishing", At: b.clock()}
	if _, err := b.links.TakeDown(ctx, mine[0].Key(), down); err != nil {
		t.Fatal(err)
	}
	spoil := func(l *link.Link, also ...fs.Update) {
		t.Helper()
		if _, err := b.linkRef(l.ID).Update(ctx, append(also, fs.Update{Path: "title", Value: 7})); err != nil {
			t.Fatal(err)
		}
	}
	spoil(mine[0])
	spoil(mine[1], fs.Update{Path: "slug", Value: "theirs"}, fs.Update{Path: "seq", Value: "?"})
	page, more, err := b.List(ctx, link.Query{AccountID: "acc", Before: link.Top, Limit: 1})
	if err != nil || more || len(page) != 1 || page[0].ID != mine[2].ID {
		t.Errorf("list = %d links, more = %v, %v; want one readable link", len(page), more, err)
	}
	if page, _, err := b.List(ctx, link.Query{AccountID: "acc", Before: mine[2].Seq, Limit: 1}); err == nil {
		t.Errorf("page without a readable link = %v, want an error", page)
	}
	if last, err := b.links.Purge(ctx, "acc", link.Top, 2); err != nil || last != mine[1].Seq {
		t.Errorf("Purge of the first page ends at %d, %v; want %d", last, err, mine[1].Seq)
	}
	if _, err := b.links.Purge(ctx, "acc", link.Top, 2); err != nil {
		t.Error(err)
	}
	if left, err := b.Remains(ctx, "acc"); err != nil || left {
		t.Errorf("Remains = %v, %v; want false", left, err)
	}
	err = b.Atomically(ctx, "look", func(tx link.Tx) error {
		_, slugs, err := tx.Find(nil, []string{mine[0].Key(), made[0].Link.Key()})
		if err != nil {
			return err
		}
		if r := slugs[0]; r.ReleasedUntil.IsZero() || r.Takedown == nil || r.Takedown.ID != down.ID {
			t.Errorf("slug of the link that was taken down = %+v, want it released with its takedown", r)
		}
		if r := slugs[1]; r.LinkID != made[0].Link.ID {
			t.Errorf("slug of another account's link = %+v, want it unchanged", r)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestADomainThatCannotBeReadLeavesWithItsAccount(t *testing.T) {
	t.Parallel()
	b, ctx := newWorld(t), t.Context()
	var ids []string
	for _, host := range []string{"a.example.com", "b.example.com"} {
		d := b.domains.New("acc", host)
		b.proofs.show(host, d)
		if err := b.domains.Claim(ctx, d, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := b.domains.Verify(ctx, "acc", d.ID); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, d.ID)
	}
	if _, err := b.Store.domains.Ref(ids[0]).Update(ctx, []fs.Update{{Path: "token", Value: 7}}); err != nil {
		t.Fatal(err)
	}
	accounts := tenancy.New(tenancy.Options{
		Standings: Standings(b.db.DB), Store: b.Store, Announce: b.heard.Announce, Links: b.links, Domains: b.domains, Now: b.clock,
	})
	if err := accounts.SetState(ctx, "acc", tenant.Standing{State: tenant.Deleting, Version: 2}); err != nil {
		t.Fatal(err)
	}
	b.offset.Add(int64(time.Minute))
	run, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = accounts.Run(run) })
	defer wg.Wait()
	defer stop()
	for deadline := time.Now().Add(20 * time.Second); ; {
		if done, err := accounts.Erased(ctx, "acc"); done && err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("not erased after 20 s: %v", err)
		}
	}
	for _, host := range []string{"a.example.com", "b.example.com"} {
		d := b.domains.New("other", host)
		b.proofs.show(host, d)
		err := b.domains.Claim(ctx, d, 0)
		if err == nil {
			_, err = b.domains.Verify(ctx, "other", d.ID)
		}
		if err != nil {
			t.Errorf("claim of %s by another account: %v", host, err)
		}
	}
}

// 400 days with the maximum number of long names are too large to delete in one commit.
func TestRemoveStatsOfALinkWithLongNames(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	id := b.create(t, "acc", 1)[0].ID
	names := map[string]int64{}
	for i := range maxReferrers {
		names[fmt.Sprintf("%03d-%s.example", i, strings.Repeat("a", 240))] = 1
	}
	rules := map[string]int64{}
	for i := range maxRuleNames {
		rules[fmt.Sprintf("%02d%s", i, strings.Repeat("\U0001F984", 98))] = 1
	}
	for from := 0; from < 400; from += 100 {
		err := b.db.DB.Commit(t.Context(), "make days", func(_ context.Context, tx *fs.Transaction) error {
			for i := range 100 {
				if err := tx.Set(b.dayRef(id, link.Day(20000+from+i)), &dayDoc{Clicks: 100, Referrers: names, Rules: rules}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := b.RemoveStats(t.Context(), []string{id}); err != nil {
		t.Fatal(err)
	}
	if left, _, err := b.Days(t.Context(), id, 0, 10); err != nil || len(left) > 0 {
		t.Errorf("got %d days after RemoveStats, %v; want none", len(left), err)
	}
}
