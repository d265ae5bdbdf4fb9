package events

import (
	_ "embed"

	"github.com/linkreel/linkreel/services/events/internal/store"
)

//go:embed firestore.indexes.json
var indexes []byte

// Indexes returns the composite indexes, exemptions and TTL fields that the service's own
// documents need, in the format that the Firebase tools deploy. Those of the events
// themselves are in libs/events.
func Indexes() []byte { return store.New(nil, nil, nil, nil, nil, 0).Indexes(indexes) }
