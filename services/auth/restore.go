package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/restored"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/trail"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
	"github.com/linkreel/linkreel/services/auth/internal/store"
	"github.com/linkreel/linkreel/services/auth/internal/tenancy"
)

// Transient returns the collections of records that give temporary access: sessions, one-time
// links and devices that wait for approval. A restore leaves them out, because a backup does
// not know which of them have ended since.
func Transient() []string { return store.Transient() }

// Recovery is what [Recover] needs.
type Recovery struct {
	DB *firestoredb.DB
	// Trail is nil if there is none.
	Trail trail.Store
	// Since is the time that the restored records are from. Older days of the trail are not read,
	// and it is in the record of the restore.
	Since time.Time
	// Tell is called with each sentence for the operator.
	Tell func(string)
}

// ErrEmpty means that a database has no accounts, so it is not a restored one.
var ErrEmpty = errors.New("the database has no accounts: is it the restored one?")

// Recover ends in a restored database what must not come back: sessions, one-time links, codes
// of devices, and what the trail says has ended. No service may use the database yet. It may be
// repeated, also after an error. If it fails to read the trail, nothing has changed.
func Recover(ctx context.Context, r Recovery) error {
	found := &trail.Found{}
	if r.Trail != nil {
		var err error
		if found, err = trail.Read(ctx, r.Trail, r.Since); err != nil {
			return err
		}
	}
	kept := open(r.DB)
	some, _, err := kept.Accounts(ctx, "", 1, func(account.Account) bool { return true })
	if err != nil {
		return err
	}
	if len(some) == 0 {
		return ErrEmpty
	}
	// The record pauses what must wait for the operator. It comes first, so a run that is killed has
	// paused it.
	record, err := restored.WriteOnce(ctx, r.DB, r.Since)
	if err != nil {
		return err
	}
	r.Tell(fmt.Sprintf("The restore %s is noted. Webhooks wait for linkreel admin recovery resume, and the janitor is off.", record.ID))
	if err := kept.EndTransient(ctx); err != nil {
		return err
	}
	r.Tell("All sessions, one-time links and codes of devices have ended.")
	n, err := ApplyTrail(ctx, r.DB, found, r.Tell)
	if err != nil {
		return err
	}
	where := ""
	if r.Trail != nil {
		where = r.Trail.String()
	}
	r.Tell(NotKnown(n, where))
	return nil
}

// NotKnown says what is in restored records as it was at their time, after n notes of a trail
// were applied. where is the place of the trail, or "" if none was given.
func NotKnown(n int, where string) string {
	if n > 0 {
		return "Passwords, passkeys and rules of access that were changed later are as before, and so are secrets of webhooks."
	}
	why := "No trail was given (--audit)"
	if where != "" {
		why = "There are no notes of this installation in " + where + " (is it the right place, and its disk mounted?)"
	}
	return why + ", so what was decided later is not known: keys that were revoked, members who were\n" +
		"removed or have a lower role, accounts that were suspended or erased, and takedowns since then are as before.\n" +
		"Repeat these decisions before you let anybody in. Passwords, passkeys and rules of access are as before, too."
}

// ApplyTrail is [EndAgain] with the notes of a trail that this installation has written. It
// tells what could not be read, and of notes that other installations wrote. n is the number of
// things that the notes are about.
func ApplyTrail(ctx context.Context, db *firestoredb.DB, found *trail.Found, tell func(string)) (n int, err error) {
	id, err := db.Installation(ctx)
	if err != nil {
		return 0, err
	}
	for _, p := range found.Problems {
		tell("Not read: " + p)
	}
	notes, others := found.Of(id)
	for _, o := range others {
		tell("Trail of another installation: " + o)
	}
	if len(notes) == 0 {
		return 0, nil
	}
	tell(fmt.Sprintf("The trail has notes about %d things. The newest is of %s.", len(notes), notes[len(notes)-1].At.Format(time.RFC3339)))
	return len(notes), EndAgain(ctx, db, notes, tell)
}

// EndAgain applies a trail to restored records: what the trail says has ended is ended again,
// before any service serves the records. It follows the service's own rules, so the loops of
// the running services finish what takes longer: erasures and takedowns. EndAgain calls tell
// with a sentence about each note that changed something or that the operator must act on. A
// note about a record that the backup does not have, or already has in the noted state,
// changes nothing. A note that can never be applied is reported too, and the others are still
// applied. The last sentence counts such notes. If the database does not answer for longer than
// [patience], or ctx ends, EndAgain fails, and the remaining notes are not applied. A caller may
// repeat it.
func EndAgain(ctx context.Context, db *firestoredb.DB, notes []trail.Note, tell func(string)) error {
	return endAgain(ctx, db, notes, tell, patience)
}

func endAgain(ctx context.Context, db *firestoredb.DB, notes []trail.Note, tell func(string), patience time.Duration) error {
	kept := open(db)
	e := &ending{
		store: kept, accounts: account.NewService(kept, nil, nil), members: member.NewService(kept, member.Provider{}, nil),
		tenants: tenancy.NewService(kept, nil, nil), now: time.Now, tell: tell,
		patience: patience,
	}
	ctx = events.WithActor(ctx, events.System)
	failed := 0
	for i, n := range notes {
		err := e.patiently(ctx, n)
		if ctx.Err() != nil {
			return fmt.Errorf("apply the trail: %w", ctx.Err())
		}
		if passing(err) {
			return fmt.Errorf("apply the trail: %s of %q: %w. %d of %d notes are not applied, so what they ended still works. "+
				"Let nobody in, and repeat the restore. This is safe", n.Kind, n.ID, err, failed+len(notes)-i, len(notes))
		}
		if err != nil { // the other notes must still be applied
			failed++
			e.sayf("Not applied: %s of %q in the account %q: %v. Do this yourself.", n.Kind, n.ID, n.Account, err)
		}
	}
	if failed > 0 {
		e.sayf("%d of %d notes were not applied. Do what they say yourself before you let anybody in.", failed, len(notes))
	}
	return nil
}

// patience is how long [EndAgain] waits altogether for a database that does not answer. It is
// much longer than a breaker refuses calls after an outage, and than a failover takes.
const patience = time.Minute

// The pauses between two attempts to apply a note double up to the last one.
const firstPause, lastPause = 200 * time.Millisecond, 2 * time.Second

// passing reports whether the same call may succeed later: the error says nothing about the note.
func passing(err error) bool { return outage.Down(err) || apierr.CodeOf(err) == apierr.RateLimited }

// ending applies notes to records that nobody uses yet.
type ending struct {
	patience time.Duration
	waited   time.Duration // for the database, because of all notes so far
	store    *store.Store
	accounts *account.Service
	members  *member.Service
	tenants  *tenancy.Service
	now      func() time.Time
	tell     func(string)
}

// patiently applies a note. It tries again while the database does not answer, until the patience
// is used up. A second attempt reads the records again, so it changes only what is still as before.
func (e *ending) patiently(ctx context.Context, n trail.Note) error {
	err := e.apply(ctx, n)
	if !passing(err) || e.waited >= e.patience {
		return err
	}
	e.sayf("Not applied yet: %s of %q: %v. Trying again.", n.Kind, n.ID, err)
	began := time.Now()
	defer func() { e.waited += time.Since(began) }()
	for pause := firstPause; passing(err) && e.waited+time.Since(began) < e.patience; pause = min(2*pause, lastPause) {
		if !outage.Pause(ctx, pause) {
			return ctx.Err()
		}
		err = e.apply(ctx, n)
	}
	return err
}

func (e *ending) sayf(format string, a ...any) { e.tell(fmt.Sprintf(format, a...)) }

func (e *ending) apply(ctx context.Context, n trail.Note) error {
	for _, id := range []string{n.ID, cmp.Or(n.Account, n.ID), cmp.Or(n.Record, n.ID)} {
		if !identity.ValidID(id) {
			return fmt.Errorf("%q is not an id", id)
		}
	}
	if n.Kind == trail.TakenDown && n.Record == "" {
		return errors.New("the note does not say what was taken down")
	}
	switch n.Kind {
	case trail.KeyRevoked, trail.KeyExpires:
		return e.key(ctx, n)
	case trail.MemberRemoved, trail.MemberRole:
		return e.member(ctx, n)
	case trail.AccountState:
		return e.account(ctx, n)
	case trail.TakenDown, trail.Lifted:
		return e.takedown(ctx, n)
	}
	e.sayf("This version does not know notes of the kind %q: check %s of the account %q yourself.", n.Kind, n.ID, n.Account)
	return nil
}

func (e *ending) key(ctx context.Context, n trail.Note) error {
	k, err := e.store.Key(ctx, n.Account, n.ID)
	if errors.Is(err, account.ErrNoKey) || err == nil && !k.Active(e.now()) {
		return nil
	}
	if err != nil {
		return err
	}
	if n.Kind == trail.KeyExpires {
		at, err := time.Parse(time.RFC3339, n.To)
		if err != nil || e.now().Before(at) {
			e.sayf("The key %s of the account %s was to end at %s: revoke it then.", n.ID, n.Account, n.To)
			return nil
		}
	}
	if err := e.accounts.Revoke(ctx, n.Account, n.ID); err != nil {
		return err
	}
	e.sayf("Revoked the key %s of the account %s.", n.ID, n.Account)
	return nil
}

func (e *ending) member(ctx context.Context, n trail.Note) error {
	m, err := e.members.Member(ctx, n.Account, n.ID)
	if errors.Is(err, member.ErrNoMember) {
		return nil
	}
	if err != nil {
		return err
	}
	if n.Kind == trail.MemberRemoved {
		err = e.members.Remove(ctx, nil, n.Account, n.ID)
		if err == nil {
			e.sayf("Removed the member %s of the account %s.", n.ID, n.Account)
		}
	} else {
		role, parseErr := identity.ParseRole(n.To)
		if parseErr != nil {
			e.sayf("The member %s of the account %s has since had the role %q, which this version does not know.", n.ID, n.Account, n.To)
			return nil
		}
		if role.AtLeast(m.Role) {
			return nil // the backup has this role or a lower one
		}
		_, err = e.members.Change(ctx, nil, n.Account, n.ID, member.Change{Role: &role})
		if err == nil {
			e.sayf("Lowered the member %s of the account %s from %s to %s.", n.ID, n.Account, m.Role, role)
		}
	}
	if errors.Is(err, member.ErrLastOwner) {
		e.sayf("The member %s is the only owner of the account %s in this backup and keeps the role: "+
			"suspend the account, or give it another owner.", n.ID, n.Account)
		return nil
	}
	return err
}

func (e *ending) account(ctx context.Context, n trail.Note) error {
	a, err := e.store.Account(ctx, n.ID)
	if errors.Is(err, account.ErrNoAccount) {
		return nil
	}
	if err != nil {
		return err
	}
	to := tenant.State(n.To)
	if a.State() == to || a.Deleting {
		return nil
	}
	switch to {
	case tenant.Suspended, tenant.Deleting:
	default:
		e.sayf("The account %s is %s, as in the backup, and was %s later.", n.ID, a.State(), n.To)
		return nil
	}
	if !a.Suspended {
		yes := true
		if _, err := e.accounts.Change(ctx, n.ID, account.Change{Suspended: &yes}); err != nil {
			return err
		}
		e.sayf("Suspended the account %s.", n.ID)
	}
	if to == tenant.Deleting {
		if _, err := e.tenants.Delete(ctx, n.ID); err != nil {
			return err
		}
		e.sayf("The erasure of the account %s begins again.", n.ID)
	}
	return nil
}

func (e *ending) takedown(ctx context.Context, n trail.Note) error {
	t, err := e.store.Takedown(ctx, n.ID)
	found := err == nil
	if err != nil && !errors.Is(err, tenancy.ErrNoTakedown) {
		return err
	}
	if n.Kind == trail.Lifted {
		if found && t.Phase == tenancy.InForce {
			e.sayf("The takedown %s is in force, as in the backup, and was lifted later.", n.ID)
		}
		return nil
	}
	if found && t.Phase == tenancy.InForce {
		return nil
	}
	if !found {
		t = tenancy.Takedown{
			Takedown: tenant.Takedown{ID: n.ID, Reason: "Taken down before data was restored. The reason was not kept.", At: n.At},
			Target:   tenant.Target{ID: n.Record}, Kind: n.To,
		}
	}
	t.Phase = tenancy.Asked
	if now := e.now(); t.At.After(now) { // the clocks of the database and of this machine differ
		t.At = now
	}
	if err := e.store.PutTakedown(ctx, t); err != nil {
		return err
	}
	e.sayf("The takedown %s of %s takes effect again.", n.ID, n.Record)
	return nil
}
