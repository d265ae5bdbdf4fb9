package store

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/localcloud/firestore"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

type bed struct {
	*Store
	server *firestore.Server
	offset *atomic.Int64
}

func (b bed) clock() time.Time { return time.Now().Add(time.Duration(b.offset.Load())) }

func newBed(t testing.TB) bed {
	t.Helper()
	text, err := os.ReadFile("../../firestore.indexes.json")
	if err != nil {
		t.Fatal(err)
	}
	indexes, err := firestore.ParseIndexes(text)
	if err != nil {
		t.Fatal(err)
	}
	server, err := firestore.Open(firestore.Options{Indexes: indexes, TTLInterval: -1, Faults: &firestore.Faults{}})
	if err != nil {
		t.Fatal(err)
	}
	addr, err := server.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: "test", Endpoint: addr.String(), Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(); _ = server.Close() })
	b := bed{server: server, offset: new(atomic.Int64)}
	b.Store = New(db, b.clock)
	return b
}

func draft(slug string) link.Draft {
	return link.Draft{Slug: link.StoredSlug(slug), Destination: link.URL{Given: "https://a.example", Location: "https://a.example/"}}
}

func (b bed) create(t testing.TB, account string, n int) []*link.Link {
	t.Helper()
	drafts := make([]link.Draft, n)
	for i := range drafts {
		drafts[i] = draft("")
	}
	results, err := b.Create(t.Context(), account, link.Origin{Nonce: fmt.Sprint(account, time.Now().UnixNano()), At: time.Now()}, drafts)
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

func TestCreate_gives_every_link_of_one_instant_its_own_place(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	at := time.Now()
	var mu sync.Mutex
	seqs, slugs := map[int64]bool{}, map[string]bool{}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			results, err := b.Create(t.Context(), "acc", link.Origin{Nonce: fmt.Sprint("n", i), At: at}, []link.Draft{draft(""), draft("")})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, r := range results {
				seqs[r.Link.Seq], slugs[r.Link.Slug.String()] = true, true
			}
		})
	}
	wg.Wait()
	page, more, err := b.List(t.Context(), "acc", link.Top, 100)
	if err != nil || more || len(page) != 24 || len(seqs) != 24 || len(slugs) != 24 {
		t.Errorf("%d links in the list, %d places, %d slugs, %v", len(page), len(seqs), len(slugs), err)
	}
}

func TestCreate_finds_its_own_record_when_tried_again(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := link.Origin{Nonce: "n", At: time.Now(), Replay: true}
	// Another link has the place that the request would take.
	if _, err := b.Create(t.Context(), "acc", link.Origin{Nonce: "other", At: o.At}, []link.Draft{draft("")}); err != nil {
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
			t.Errorf("draft %d: first %+v, again %+v", i, first[i], again[i])
		}
	}
	if apierr.CodeOf(first[2].Err) != apierr.SlugTaken || apierr.CodeOf(again[2].Err) != apierr.SlugTaken {
		t.Errorf("the second of two equal slugs: %v, %v", first[2].Err, again[2].Err)
	}
	if page, _, _ := b.List(t.Context(), "acc", link.Top, 100); len(page) != 3 {
		t.Errorf("%d links", len(page))
	}
}

func TestCreate_survives_lost_answers(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.server.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Every: 3, LoseAnswer: true, Code: codes.Unavailable})
	for i := range 30 {
		results, err := b.Create(t.Context(), "acc", link.Origin{Nonce: fmt.Sprint("n", i), At: time.Now()}, []link.Draft{draft(fmt.Sprint("s", i))})
		if err != nil || results[0].Err != nil {
			t.Fatalf("create %d: %v, %v", i, results, err)
		}
	}
	b.server.Faults().Clear()
	if page, _, _ := b.List(t.Context(), "acc", link.Top, 100); len(page) != 30 {
		t.Errorf("%d links", len(page))
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

func TestCount_writes_links_days_and_progress_together(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.Counts(errOvertaken)
	links := b.create(t, "acc", 2)
	day := link.DayOf(time.Now())
	p, err := c.Progress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	marks := map[string]link.Mark{"p": {Batch: 3, Total: 7, Day: day}}
	tallies := []*link.Tally{
		tally(links[0].ID, day-1, link.Click{Device: link.Mobile}),
		tally(links[0].ID, day, link.Click{Referrer: "a.example", Country: "DE"}, link.Click{Referrer: "b.c.example"}),
		tally("lnk_gone", day, link.Click{}),
	}
	next, err := c.Count(t.Context(), p, marks, tallies)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Count(t.Context(), p, marks, tallies); !errors.Is(err, errOvertaken) {
		t.Errorf("a writer with old progress got %v", err)
	}
	stored, err := c.Progress(t.Context())
	if diff := cmp.Diff(next, stored); diff != "" || err != nil {
		t.Errorf("progress (-want +got):\n%s%v", diff, err)
	}
	if l, err := b.Get(t.Context(), "acc", links[0].ID); err != nil || l.Clicks != 3 || l.Rev != 1 {
		t.Errorf("link %+v, %v", l, err)
	}
	st, err := b.Stats(t.Context(), links[0].ID, day-1, day+1)
	want := link.Stats{Total: 3, Days: []int64{1, 2, 0}, Referrers: []link.Share{{Name: "", Clicks: 1}, {Name: "a.example", Clicks: 1}, {Name: "b.c.example", Clicks: 1}},
		Countries: []link.Share{{Name: "", Clicks: 2}, {Name: "DE", Clicks: 1}}, Devices: []link.Share{{Name: "other", Clicks: 2}, {Name: "mobile", Clicks: 1}}}
	if diff := cmp.Diff(want, st); diff != "" || err != nil {
		t.Errorf("stats (-want +got):\n%s%v", diff, err)
	}
	if _, err := b.Get(t.Context(), "acc", "lnk_gone"); apierr.CodeOf(err) != apierr.LinkNotFound {
		t.Errorf("counting revived a deleted link: %v", err)
	}
}

func TestCount_of_many_links_survives_an_interruption(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.Counts(errOvertaken)
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
	// The second part fails for good, as if the process had ended there.
	remove := b.server.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Every: 3, Code: codes.InvalidArgument, Times: 1})
	if _, err := c.Count(t.Context(), p, marks, tallies); err == nil {
		t.Fatal("the interruption did not interrupt")
	}
	remove()
	successor := b.Counts(errOvertaken)
	for range 2 { // finishing twice counts once
		if p, err = successor.Progress(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if p.Producers["p"].Batch != 1 {
		t.Errorf("progress %+v", p)
	}
	total := int64(0)
	for before := link.Top; ; {
		page, more, err := b.List(t.Context(), "acc", before, 100)
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
		t.Errorf("%d clicks on %d links", total, len(links))
	}
}

func TestCount_bounds_the_referrers_of_a_day(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	id, day := b.create(t, "acc", 1)[0].ID, link.DayOf(time.Now())
	for round := range 3 {
		c := b.Counts(errOvertaken) // a new process each time
		p, err := c.Progress(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sum := &link.Tally{LinkID: id, Day: day}
		for i := range 70 {
			sum.Add(link.Click{Referrer: fmt.Sprintf("h%d.example", round*50+i)}, 1)
		}
		if _, err := c.Count(t.Context(), p, map[string]link.Mark{"p": {Batch: int64(round + 1)}}, []*link.Tally{sum}); err != nil {
			t.Fatal(err)
		}
	}
	st, err := b.Stats(t.Context(), id, day, day)
	if err != nil || st.Total != 210 || len(st.Referrers) != maxReferrers+1 {
		t.Fatalf("%d clicks, %d referrers, %v", st.Total, len(st.Referrers), err)
	}
	sum := int64(0)
	for _, r := range st.Referrers {
		sum += r.Clicks
	}
	if sum != 210 || st.Referrers[0].Name != OtherReferrers {
		t.Errorf("referrers add up to %d, first is %v", sum, st.Referrers[0])
	}
}

func TestDomains_belong_to_the_first_that_proves_them(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	claim := func(account string) string {
		t.Helper()
		d, err := b.Claim(t.Context(), account, "go.example.com", "t"+account, link.Origin{Nonce: account, At: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		return d.ID
	}
	look := func(account, id string, proven bool) error {
		_, _, err := b.Looked(t.Context(), account, id, proven)
		return err
	}
	a, z := claim("a"), claim("z")
	if again := claim("a"); again != a { // the same request once more
		t.Errorf("a repeated claim is another domain")
	}
	if _, err := b.Claim(t.Context(), "a", "go.example.com", "t", link.Origin{Nonce: "new", At: time.Now()}); apierr.CodeOf(err) != apierr.DomainTaken {
		t.Errorf("a second claim of one account: %v", err)
	}
	if err := look("a", a, false); err != nil {
		t.Error(err)
	}
	if err := look("a", z, true); apierr.CodeOf(err) != apierr.DomainNotFound {
		t.Errorf("another account's claim: %v", err)
	}
	if err := look("z", z, true); err != nil {
		t.Fatal(err)
	}
	for _, proven := range []bool{true, false} {
		if err := look("a", a, proven); apierr.CodeOf(err) != apierr.DomainTaken {
			t.Errorf("the slower claim, proven %v: %v", proven, err)
		}
	}
	if _, err := b.Claim(t.Context(), "late", "go.example.com", "t", link.Origin{Nonce: "l", At: time.Now()}); apierr.CodeOf(err) != apierr.DomainTaken {
		t.Errorf("a claim after the proof: %v", err)
	}
	if id, found, err := b.Host(t.Context(), "go.example.com"); id != z || !found || err != nil {
		t.Errorf("the host belongs to %q, %v", id, err)
	}

	on := draft("s")
	on.DomainID = z
	create := func(account, nonce string) error {
		results, err := b.Create(t.Context(), account, link.Origin{Nonce: nonce, At: b.clock()}, []link.Draft{on})
		if err == nil {
			err = results[0].Err
		}
		return err
	}
	if err := create("a", "n1"); apierr.CodeOf(err) != apierr.DomainNotFound {
		t.Errorf("a link on another's domain: %v", err)
	}
	if err := create("z", "n2"); err != nil {
		t.Error(err)
	}
	if _, err := b.DeleteDomain(t.Context(), "z", z); apierr.CodeOf(err) != apierr.DomainInUse {
		t.Errorf("deleting a domain in use: %v", err)
	}

	// The proof disappears: for a week nothing happens, then another may prove it.
	b.offset.Add(int64(25 * time.Hour))
	due, err := b.DueDomains(t.Context(), 10)
	if err != nil || len(due) != 1 || due[0].ID != z {
		t.Fatalf("due are %v, %v", due, err)
	}
	if err := look("z", z, false); err != nil {
		t.Fatal(err)
	}
	b.offset.Add(int64(6 * 24 * time.Hour))
	if err := look("a", a, true); apierr.CodeOf(err) != apierr.DomainTaken {
		t.Errorf("a proof within the week: %v", err)
	}
	b.offset.Add(int64(24 * time.Hour))
	if err := create("z", "n3"); apierr.CodeOf(err) != apierr.DomainNotVerified {
		t.Errorf("a link on a lapsed domain: %v", err)
	}
	if _, changed, err := b.Looked(t.Context(), "a", a, true); err != nil || !changed {
		t.Errorf("a proof after the week: changed %v, %v", changed, err)
	}
	if id, _, _ := b.Host(t.Context(), "go.example.com"); id != a {
		t.Errorf("the host belongs to %q", id)
	}
	if err := look("z", z, false); err != nil { // the daily look at a lost claim is no error
		t.Error(err)
	}
	if _, err := b.DeleteDomain(t.Context(), "a", a); err != nil {
		t.Error(err)
	}
	if _, found, _ := b.Host(t.Context(), "go.example.com"); found {
		t.Error("a deleted domain still owns its host")
	}
}

func TestIndexedFieldsAreSmall(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	big := draft("big")
	big.Destination = link.URL{Given: "https://a.example/" + strings.Repeat("ü", 4000), Location: "https://a.example/" + strings.Repeat("%C3%BC", 4000)}
	long := strings.Repeat("ü", 1000)
	big.Title, big.Preview = long[:1000], link.Preview{Title: &long, Description: &long, Image: &big.Destination}
	results, err := b.Create(t.Context(), "acc", link.Origin{Nonce: "n", At: time.Now()}, []link.Draft{big})
	if err != nil || results[0].Err != nil {
		t.Fatalf("a link with long fields: %v, %v", results, err)
	}
}
