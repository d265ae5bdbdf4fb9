package events

import (
	_ "embed"

	"github.com/linkreel/linkreel/services/events/internal/store"
)

//go:embed firestore.indexes.json
var indexes []byte

// Indexes returns the composite indexes, exemptions and TTL fields for the service's documents, in
// the format that the Firebase tools use. The indexes for the events themselves are in libs/events.
func Indexes() []byte { return store.New(nil, nil, nil, nil, nil, 0).Indexes(indexes) }
