package store

import (
	"context"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Teller is how the store tells of changes: each transaction that changes what is
// shown of a video writes its event too.
type Teller struct {
	Outbox *outbox.Outbox
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
	var data any
	if s.teller.Video != nil {
		data = s.teller.Video(v)
	}
	return s.teller.Outbox.Put(ctx, tx, events.Event{AccountID: v.AccountID, Type: what, Object: string(v.ID), Data: data})
}

// statusEvents name the moves of a video's status that are told of by themselves.
var statusEvents = map[video.Status]events.Type{
	video.Processing: events.VideoProcessing, video.Ready: events.VideoReady, video.Failed: events.VideoFailed,
}

// changeOf is the event of a change; "" for one that shows nowhere. UpdatedAt
// moves with each change of what is shown but views and progress.
func changeOf(before, after *video.Video) events.Type {
	if before.Status != after.Status {
		if t, ok := statusEvents[after.Status]; ok {
			return t
		}
	}
	if before.UpdatedAt.Equal(after.UpdatedAt) {
		return ""
	}
	return events.VideoUpdated
}
