// Package storage is an object storage in this process, for local runs, tests and small installations: to a Google
// Cloud Storage client it behaves like Cloud Storage.
//
// # Promises
//
// A Server has two sides. PublicHandler is for strangers: the XML API, where every request must carry a V4 signature
// over its method, host, path, query and signed headers, made by a key that the server knows and still in time. An
// address that was altered, expired, moved to another object or used with another method is refused. Nothing is asked
// of the client beyond what was signed: an unsigned Content-Type is fine. APIHandler is for the own services: the JSON
// API, under a bearer token (Options.Token), on a listener that strangers cannot reach.
//
// What was acknowledged is on disk, synced: the bytes in a file of their own, the rest in an index that changes in one
// transaction. A crash leaves an object whole or absent, never half, and an acknowledged part of a resumable upload
// stays acknowledged. Leftover files are removed at the next Open. Concurrent small writes share disk syncs. Bytes are
// streamed: memory does not grow with the size of an object, and nobody waits for anybody's slow upload.
//
// Preconditions, generations and metagenerations, ranges, resumable sessions (308 and Range, overlaps, takeover of a
// hanging request), compose, copy, listing with prefixes and pages, CORS by bucket configuration and notifications in
// Pub/Sub push format are as production documents them.
//
// Uploads by signed addresses end at Options.MaxUpload, and all of them leave Options.Reserve of the volume free: 507,
// InsufficientStorage, says how much there is. Bytes can have a directory of their own (Options.ObjectsDir).
//
// # Known gaps
//
// Object versions and soft delete (the live object is the only one), ACLs and IAM, V2 and HMAC signatures, POST policy
// documents, S3-style multipart uploads, virtual-hosted addresses, batch requests, holds, retention and lifecycle rules,
// bucket settings other than cors and labels, matchGlob and filter in listings, gRPC. What is not implemented answers
// 501 rather than doing something else. One thing differs in silence: an object's Content-Encoding is kept and shown,
// but production unpacks gzip for readers that do not accept it, and here all get the bytes as they are stored.
package storage
