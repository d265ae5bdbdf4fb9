package store

import (
	"context"
	"encoding/json"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Teller is how the store tells of changes: each transaction that changes what is
// shown of a video writes its event too.
type Teller struct {
	Outbox *events.Outbox
	// Video is the record as the API shows it, without addresses that give access.
	Video func(*video.Video) any
}

// Tell sets how changes are told of. A store without it changes nothing that is
// shown: its transactions fail.
func (s *Store) Tell(t Teller) *Store {
	s.teller = t
	return s
}

func (s *Store) tell(ctx context.Context, tx *firestore.Transaction, what events.Type, v *video.Video) error {
	return s.teller.Outbox.Put(ctx, tx, events.Event{AccountID: v.AccountID, Type: what, Object: string(v.ID), Data: s.shown(v)})
}

// statusEvents name the moves of a video's status that are told of by themselves.
var statusEvents = map[video.Status]events.Type{
	video.Processing: events.VideoProcessing, video.Ready: events.VideoReady, video.Failed: events.VideoFailed,
}

// changeOf is the event of a change; "" for one that shows nowhere. UpdatedAt
// moves with each change of what is shown but views and progress. What is shown is
// compared besides, so that a change that forgot to move it is told of all the same.
func (s *Store) changeOf(before, after *video.Video, shownBefore string) events.Type {
	if before.Status != after.Status {
		if t, ok := statusEvents[after.Status]; ok {
			return t
		}
	}
	if before.UpdatedAt.Equal(after.UpdatedAt) && shownBefore == s.told(after) {
		return ""
	}
	return events.VideoUpdated
}

// told is what of a video has an event when it changes.
func (s *Store) told(v *video.Video) string {
	quiet := *v
	quiet.Views, quiet.Progress = 0, 0
	text, err := json.Marshal(s.shown(&quiet))
	if err != nil {
		return err.Error() // the event fails too, and the change with it
	}
	return string(text)
}

func (s *Store) shown(v *video.Video) any {
	if s.teller.Video == nil {
		return nil
	}
	return s.teller.Video(v)
}
