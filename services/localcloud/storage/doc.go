// Package storage is an object storage in this process, for local runs, tests and small
// installations. For a Google Cloud Storage client, it behaves like Cloud Storage.
//
// # Promises
//
// A Server has two sides. PublicHandler may be open to everybody. It serves the XML API, in which
// every request needs a V4 signature over its method, host, path, query and signed headers. The
// signature must be made with a key that the server knows, and it must not have expired. The server
// rejects a signed URL that was altered, has expired, or is used for another object or method. The
// client need not send anything that was not signed. An unsigned Content-Type is allowed.
// APIHandler is for your own services. It serves the JSON API with a bearer token (Options.Token),
// on a listener that strangers cannot reach.
//
// Acknowledged data is synced to disk. The bytes are in a separate file, and everything else is in
// an index that changes in one transaction. After a crash, an object is either complete or absent,
// and an acknowledged part of a resumable upload is kept. The next Open removes leftover files.
// Concurrent small writes share disk syncs. Bytes are streamed: memory does not grow with the size
// of an object, and a slow upload delays no other request.
//
// Preconditions, generations and metagenerations, ranges, resumable sessions (308 and Range,
// overlaps, takeover of a hanging request), compose, copy, listing with prefixes and pages, CORS by
// bucket configuration, and notifications in Pub/Sub push format work as documented for production.
//
// An upload by a signed URL may have at most Options.MaxUpload bytes. All uploads leave
// Options.Reserve of the volume free. The 507 InsufficientStorage error contains the free space.
// Bytes can have a separate directory (Options.ObjectsDir).
//
// # Known gaps
//
// The following are not implemented: object versions and soft delete (only the live object exists),
// ACLs and IAM, V2 and HMAC signatures, POST policy documents, S3-style multipart uploads,
// virtual-hosted addresses, batch requests, holds, retention and lifecycle rules, bucket settings
// other than cors and labels, matchGlob and filter in listings, and gRPC. Requests for them return
// 501 and have no other effect. One difference causes no error: production decompresses gzip for
// readers that do not accept it, but here all readers get the stored bytes. An object's
// Content-Encoding is stored and returned.
package storage
