package jobs

import _ "embed"

// Indexes are the index and the exemptions for the jobs' documents, in the format that the
// Firebase tools deploy.
//
//go:embed firestore.indexes.json
var Indexes []byte
