package links

import (
	_ "embed"

	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/links/internal/store"
)

//go:embed firestore.indexes.json
var indexes []byte

// Indexes returns the composite indexes, exemptions and TTL fields that the
// service's documents need, in the format that the Firebase tools deploy.
func Indexes() []byte {
	return store.New(record.Open(nil, record.Options{}), store.Shown{}).Records.Indexes(indexes)
}
