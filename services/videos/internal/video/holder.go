package video

import (
	"context"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/tenant"
)

// TakeDown blocks a video. Every page and playlist reads the record, so a takedown takes effect
// on every replica as soon as it is stored. A slug is never reused for another video, so deleting
// the video does not undo the takedown.
func (s *Service) TakeDown(ctx context.Context, o tenant.Order) (tenant.Takedown, error) {
	id := ID(o.Target.ID)
	if o.Target.URL != "" {
		slug, ok := s.o.Addresses.Slug(o.Target.URL)
		if !ok {
			return tenant.Takedown{}, NotFound()
		}
		v, err := s.o.Store.BySlug(ctx, slug)
		if err != nil {
			return tenant.Takedown{}, err
		}
		id = v.ID
	} else if !strings.HasPrefix(o.Target.ID, "vid_") {
		// An operator entered the target. If it does not have the prefix, it is not a video ID, so
		// there is nothing to look up.
		return tenant.Takedown{}, NotFound()
	}
	v, err := s.o.Store.Update(ctx, id, func(v *Video) error {
		// Keep the earlier takedown and return it, so auth drops the new one.
		if v.TakenDown != nil {
			return ErrUnchanged
		}
		v.TakenDown = &Takedown{ID: o.ID, Reason: o.Reason, At: o.At.UTC().Truncate(time.Millisecond)}
		v.UpdatedAt = s.o.Now()
		return nil
	})
	if err != nil {
		return tenant.Takedown{}, err
	}
	return tenant.Takedown{
		ID: v.TakenDown.ID, Kind: tenant.KindVideo, RecordID: string(v.ID), AccountID: v.AccountID,
		URL: s.o.Addresses.Page(v.Slug), Reason: v.TakenDown.Reason, At: v.TakenDown.At,
	}, nil
}

// Lift ends takedown t. It leaves any other takedown of the same video in place.
func (s *Service) Lift(ctx context.Context, t tenant.Takedown) error {
	id := ID(t.RecordID)
	if id == "" { // auth did not record which video it was
		slug, ok := s.o.Addresses.Slug(t.URL)
		if !ok {
			return nil
		}
		v, err := s.o.Store.BySlug(ctx, slug)
		if IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		id = v.ID
	}
	_, err := s.o.Store.Update(ctx, id, func(v *Video) error {
		if v.TakenDown == nil || v.TakenDown.ID != t.ID {
			return ErrUnchanged
		}
		v.TakenDown, v.UpdatedAt = nil, s.o.Now()
		return nil
	})
	if IsNotFound(err) {
		return nil // the video was deleted, so there is no takedown to lift
	}
	return err
}
