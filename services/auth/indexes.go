package auth

import _ "embed"

//go:embed firestore.indexes.json
var indexes []byte

// Indexes returns the composite indexes, exemptions and TTL fields that the service's
// documents need, in the format of the Firebase tools.
func Indexes() []byte { return indexes }
