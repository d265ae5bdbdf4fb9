package tags

import _ "embed"

// Indexes are the composite indexes and exemptions for the tags' documents, in the
// format that the Firebase tools deploy.
//
//go:embed firestore.indexes.json
var Indexes []byte
