package auth

import _ "embed"

//go:embed firestore.indexes.json
var indexes []byte

// Indexes returns the composite indexes, exemptions and TTL fields that the
// service's documents need, in the form the Firebase tools deploy.
func Indexes() []byte { return indexes }
