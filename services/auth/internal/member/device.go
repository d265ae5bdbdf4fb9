package member

import (
	"context"
	"errors"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// StartDevice stores a program's request for a key. The program keeps code secret and uses it
// to collect the key.
func (s *Service) StartDevice(ctx context.Context, code identity.Key, name string, scopes identity.ScopeSet) (Device, error) {
	d := Device{
		Hash: code.Hash(), UserCode: userCode(), Name: name, Scopes: scopes,
		CreatedAt: s.now(), ExpiresAt: s.now().Add(DeviceCodeLife),
	}
	return d, s.store.People(ctx, "add device", func(tx Tx) error {
		tx.Add(d, events.Quiet)
		return nil
	})
}

// userCode returns a code that is short enough for people to compare and too long to guess in
// ten minutes.
func userCode() string {
	text := identity.NewSlug(8)
	return text[:4] + "-" + text[4:]
}

// Device looks up a request that is waiting for a person's decision.
func (s *Service) Device(ctx context.Context, userCode string) (Device, error) {
	d, err := s.store.Look(ctx).Device(userCode)
	if err == nil && (!s.now().Before(d.ExpiresAt) || d.MemberID != "" || d.Denied) {
		err = ErrNoDevice
	}
	if err != nil {
		return Device{}, err
	}
	return d, nil
}

// DecideDevice stores the signed-in person's decision. Only a member who may create keys can
// approve a request, and only for scopes that they have.
func (s *Service) DecideDevice(ctx context.Context, by *identity.Principal, userCode string, approve bool) error {
	d, err := s.Device(ctx, userCode)
	if err != nil {
		return err
	}
	return s.store.People(ctx, "decide on device", func(tx Tx) error {
		now, err := tx.DeviceByHash(d.Hash)
		if err != nil {
			return err
		}
		if now.MemberID != "" || now.Denied {
			return ErrNoDevice
		}
		if !approve {
			now.Denied = true
			tx.Put(now, events.Quiet)
			return nil
		}
		if _, err := deviceScopes(tx, by.AccountID, by.MemberID, now); err != nil {
			return err
		}
		now.AccountID, now.MemberID = by.AccountID, by.MemberID
		tx.Put(now, events.Quiet)
		return nil
	})
}

// deviceScopes checks that the member may currently grant the scopes.
func deviceScopes(tx Tx, accountID, memberID string, d Device) (identity.ScopeSet, error) {
	if err := account.Staying(tx, accountID); err != nil {
		return 0, err
	}
	role, err := tx.Role(accountID, memberID)
	if err != nil {
		return 0, err
	}
	if !role.Scopes().Has(identity.KeysWrite) {
		return 0, apierr.ScopeRequired(identity.KeysWrite.String(), "Your role does not allow you to create keys. Ask an admin of the account.")
	}
	return d.Scopes, account.MayGive(role.Scopes(), d.Scopes)
}

// ErrPending is returned until a person has decided.
var ErrPending = apierr.New(apierr.AuthorizationPending, "The request is waiting for a person's decision. Try again.")

// CollectDevice creates the key that a person approved, and deletes the request.
func (s *Service) CollectDevice(ctx context.Context, code, secret identity.Key) (made account.Key, err error) {
	hash := code.Hash()
	var d Device
	read := func(from Reads) (err error) {
		d, err = from.DeviceByHash(hash)
		switch {
		case err != nil:
			return err
		case !s.now().Before(d.ExpiresAt):
			return ErrNoDevice
		case d.Denied:
			return apierr.New(apierr.Forbidden, "The request was denied.")
		case d.MemberID == "":
			return ErrPending
		}
		return nil
	}
	// Read the device before the transaction as well because the member who approved it is the
	// actor of the transaction's events.
	if err := read(s.store.Look(ctx)); err != nil {
		return account.Key{}, err
	}
	m, err := s.store.Look(ctx).Member(d.AccountID, d.MemberID)
	if errors.Is(err, ErrNoMember) {
		err = ErrNoDevice
	}
	if err != nil {
		return account.Key{}, err
	}
	ctx = events.WithActor(ctx, events.Actor{Type: events.ActorMember, ID: m.ID, Name: m.Name})
	err = s.store.People(ctx, "collect device key", func(tx Tx) error {
		if err := read(tx); err != nil {
			return err
		}
		scopes, err := deviceScopes(tx, d.AccountID, d.MemberID, d)
		if err != nil {
			return err
		}
		made = account.Key{
			ID: identity.NewID("key"), AccountID: d.AccountID, Hash: secret.Hash(), Name: d.Name,
			Prefix: secret.Prefix(), Last4: secret.Last4(), Scopes: scopes, MadeBy: d.MemberID, CreatedAt: s.now(),
		}
		if err := account.Room(tx, made, 1, s.now()); err != nil {
			return err
		}
		tx.Add(made, events.KeyCreated)
		tx.Remove(d, events.Quiet)
		return nil
	})
	return made, err
}
