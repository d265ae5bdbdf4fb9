package events_test

import (
	"context"
	"testing"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
)

func TestActorOf(t *testing.T) {
	t.Parallel()
	key := identity.WithPrincipal(t.Context(), &identity.Principal{KeyID: "key_1"})
	for name, c := range map[string]struct {
		ctx  context.Context
		want events.ActorType
	}{
		"key": {key, events.ActorKey}, "operator": {events.AsOperator(t.Context()), events.ActorOperator},
		"no actor": {t.Context(), events.ActorSystem}, "actor in the context": {events.WithActor(key, events.Actor{Type: events.ActorMember}), events.ActorMember},
	} {
		if got := events.ActorOf(c.ctx); got.Type != c.want {
			t.Errorf("%s: ActorOf = %v, want %v", name, got, c.want)
		}
	}
}
