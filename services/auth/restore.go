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

// Transient returns the collections of records that grant temporary access: sessions, one-time
// links and devices waiting for approval. A restore omits them because a backup does not show which
// of them have ended since.
func Transient() []string { return store.Transient() }

// Recovery holds the parameters for [Recover].
type Recovery struct {
	DB *firestoredb.DB
	// Trail is nil if there is no trail.
	Trail trail.Store
	// Since is the time of the restored records. Recover skips earlier days in the trail, and
	// stores Since in the restore's record.
	Since time.Time
	// Tell is called with each sentence for the operator.
	Tell func(string)
}

// ErrEmpty means that the database has no accounts, so it cannot be a restored database.
var ErrEmpty = errors.New("the database has no accounts: is it the restored database?")

// Recover revokes everything in a restored database that must not come back: sessions, one-time
// links, device codes, and the rights that ended according to the trail. The services must not use
// the database yet. Recover can be repeated, even after an error. If it cannot read the trail, it
// does not change anything.
func Recover(ctx context.Context, r Recovery) error {
	found := &trail.Found{}
	if r.Trail != nil {
		var err error
		if found, err = trail.Read(ctx, r.Trail, r.Since); err != nil {
			return err
		}
	}
	kept := open(r.DB)
	// Read only an id: an unreadable account must not stop the restore.
	some, err := r.DB.IDs(ctx, "look up accounts", r.DB.Collection("accounts").Limit(1))
	if err != nil {
		return err
	}
	if len(some) == 0 {
		return ErrEmpty
	}
	// The record pauses webhooks and the janitor until the operator resumes them. Write it first, so
	// that they are paused even if this run is killed.
	record, err := restored.WriteOnce(ctx, r.DB, r.Since)
	if err != nil {
		return err
	}
	r.Tell(fmt.Sprintf("Recorded the restore %s. Webhooks and the janitor are paused until you run linkreel admin recovery resume.", record.ID))
	if err := kept.EndTransient(ctx); err != nil {
		return err
	}
	r.Tell("Ended all sessions, one-time links and device codes.")
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

// NotKnown returns the operator's message about the later changes that are still lost after n notes
// from a trail have been applied. where is the trail's location, or "" if none was given.
func NotKnown(n int, where string) string {
	if n > 0 {
		return "Later changes to passwords, passkeys, access rules and webhook secrets are lost."
	}
	why := "No trail was given (--audit)"
	if where != "" {
		why = "There are no notes from this installation in " + where + " (is this the right place, and is its disk mounted?)"
	}
	return why + ", so decisions that were made after the backup are lost: revoked keys are valid again, removed\n" +
		"members are back, lowered roles are restored, and suspensions, erasures and takedowns are undone. Repeat these decisions\n" +
		"before you let anybody in. Later changes to passwords, passkeys and access rules are lost too."
}

// ApplyTrail calls [EndAgain] with the notes in a trail that this installation has written. It also
// reports the files that could not be read and the notes that other installations wrote. n is the
// number of records that the notes apply to.
func ApplyTrail(ctx context.Context, db *firestoredb.DB, found *trail.Found, tell func(string)) (n int, err error) {
	id, err := db.Installation(ctx)
	if err != nil {
		return 0, err
	}
	for _, p := range found.Problems {
		tell("Could not read a file in the trail: " + p)
	}
	notes, others := found.Of(id)
	for _, o := range others {
		tell("The trail contains notes from another installation: " + o)
	}
	if len(notes) == 0 {
		return 0, nil
	}
	tell(fmt.Sprintf("The trail contains notes about %d records. The newest is from %s.", len(notes), notes[len(notes)-1].At.Format(time.RFC3339)))
	return len(notes), EndAgain(ctx, db, notes, tell)
}

// EndAgain applies a trail to restored records before any service serves them. Rights that ended
// after the backup are ended again. It uses the service's own operations, and leaves erasures and
// takedowns, which take longer, to the running services' loops. EndAgain calls tell with a sentence
// about each note that changed something or that requires the operator to act. A note has no effect
// if the backup does not contain its record, or already has it in that state. A note that can never
// be applied is reported, and the others are still applied. The last sentence says how many such
// notes there were. If the database does not respond for longer than [patience], or if ctx is done,
// EndAgain fails without applying the remaining notes. The caller can repeat the call.
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
			return fmt.Errorf("apply the trail: %s for %q: %w. %d of %d notes are not applied, so the rights that they end are still valid. "+
				"Do not let anybody in, and repeat the restore. Repeating it is safe", n.Kind, n.ID, err, failed+len(notes)-i, len(notes))
		}
		if err != nil { // the remaining notes must still be applied
			failed++
			e.sayf("Not applied: %s for %q in the account %q: %v. Apply it yourself.", n.Kind, n.ID, n.Account, err)
		}
	}
	if failed > 0 {
		e.sayf("%d of %d notes were not applied. Repeat these decisions yourself before you let anybody in.", failed, len(notes))
	}
	return nil
}

// patience is how long [EndAgain] waits in total for a database that does not respond. It is
// much longer than a failover takes, and much longer than a circuit breaker stays open after an
// outage.
const patience = time.Minute

// The pause between attempts to apply a note doubles from firstPause up to lastPause.
const firstPause, lastPause = 200 * time.Millisecond, 2 * time.Second

// passing reports whether err is temporary, in which case the same call may succeed later. Such an
// error is not the note's fault.
func passing(err error) bool { return outage.Down(err) || apierr.CodeOf(err) == apierr.RateLimited }

// ending applies notes to restored records before any service uses them.
type ending struct {
	patience time.Duration
	waited   time.Duration // total time spent waiting for the database, for all notes
	store    *store.Store
	accounts *account.Service
	members  *member.Service
	tenants  *tenancy.Service
	now      func() time.Time
	tell     func(string)
}

// patiently applies a note. While the database does not respond, it retries until patience is
// used up. Each attempt reads the records again, so it skips whatever an earlier attempt has
// already changed.
func (e *ending) patiently(ctx context.Context, n trail.Note) error {
	err := e.apply(ctx, n)
	if !passing(err) || e.waited >= e.patience {
		return err
	}
	e.sayf("Not applied yet: %s for %q: %v. Retrying.", n.Kind, n.ID, err)
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
	e.sayf("This version does not support notes of the kind %q. Check %s in the account %q yourself.", n.Kind, n.ID, n.Account)
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
		switch {
		case err != nil:
			e.sayf("The key %s in the account %s was due to expire at %s. Revoke it at that time.", n.ID, n.Account, n.To)
			return nil
		// Notes are only accurate to the second.
		case !k.ExpiresAt.IsZero() && !at.Before(k.ExpiresAt.Truncate(time.Second)):
			return nil // as in the backup
		case e.now().Before(at):
			if err := e.accounts.EndBy(ctx, n.Account, n.ID, at); err != nil {
				return err
			}
			e.sayf("The key %s in the account %s expires at %s again.", n.ID, n.Account, n.To)
			return nil
		}
	}
	if err := e.accounts.Revoke(ctx, n.Account, n.ID); err != nil {
		return err
	}
	e.sayf("Revoked the key %s in the account %s.", n.ID, n.Account)
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
			e.sayf("Removed the member %s from the account %s.", n.ID, n.Account)
		}
	} else {
		role, parseErr := identity.ParseRole(n.To)
		if parseErr != nil {
			e.sayf("The member %s of the account %s was later given the role %q, which this version does not support. Check the role yourself.", n.ID, n.Account, n.To)
			return nil
		}
		if role.AtLeast(m.Role) {
			return nil // the role in the backup is the same or lower
		}
		_, err = e.members.Change(ctx, nil, n.Account, n.ID, member.Change{Role: &role})
		if err == nil {
			e.sayf("Lowered the role of the member %s in the account %s from %s to %s.", n.ID, n.Account, m.Role, role)
		}
	}
	if errors.Is(err, member.ErrLastOwner) {
		e.sayf("The member %s keeps the owner role, because the account %s has no other owner in this backup. "+
			"Suspend the account, or add another owner and remove this one.", n.ID, n.Account)
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
		e.sayf("The account %s is %s, as in the backup, but later became %s.", n.ID, a.State(), n.To)
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
		e.sayf("Restarted the erasure of the account %s.", n.ID)
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
			e.sayf("The takedown %s is in force, as in the backup, but was lifted later.", n.ID)
		}
		return nil
	}
	if found && t.Phase == tenancy.InForce {
		return nil
	}
	if !found {
		t = tenancy.Takedown{
			Takedown: tenant.Takedown{ID: n.ID, Reason: "Taken down before the data was restored from a backup. The reason is lost.", At: n.At},
			Target:   tenant.Target{ID: n.Record}, Kind: n.To,
		}
	}
	t.Phase = tenancy.Asked
	if now := e.now(); t.At.After(now) { // the database's and this machine's clocks differ
		t.At = now
	}
	if err := e.store.PutTakedown(ctx, t); err != nil {
		return err
	}
	e.sayf("Restored the takedown %s of %s.", n.ID, n.Record)
	return nil
}
