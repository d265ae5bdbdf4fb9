// Package storage is an object storage that runs in this process, for local runs, tests and small installations. To a
// Google Cloud Storage client it behaves like Cloud Storage.
//
// # Promises
//
// A Server has two sides. PublicHandler may be open to everybody. It serves the XML API. There,
// every request needs a V4 signature over its method, host, path, query and signed headers. The
// signature must be made with a key that the
// server knows, and must not have expired. A signed URL that was altered, has expired, or is used for another
// object or method is rejected. The client need not send anything beyond what was signed; an unsigned Content-Type is
// fine. APIHandler is for your own services: the JSON API, under a bearer token (Options.Token), on a listener that
// strangers cannot reach.
//
// Acknowledged data is synced to disk. The bytes are in a file of their own, and everything else
// is in an index that changes in one transaction. A crash leaves an object whole or absent, never
// half, and an acknowledged part of a resumable upload stays acknowledged. Leftover files are removed at the next Open. Concurrent small writes share disk syncs. Bytes are
// streamed: memory does not grow with the size of an object, and a slow upload delays no other request.
//
// Preconditions, generations and metagenerations, ranges, resumable sessions (308 and Range, overlaps, takeover of a
// hanging request), compose, copy, listing with prefixes and pages, CORS by bucket configuration and notifications in
// Pub/Sub push format work as production documents them.
//
// An upload by a signed URL may be at most Options.MaxUpload long. All uploads leave Options.Reserve of the volume
// free; the 507 InsufficientStorage error states how much is free. Bytes can have a directory of their own
// (Options.ObjectsDir).
//
// # Known gaps
//
// The following are not implemented: object versions and soft delete (the live object is the only
// one), ACLs and IAM, V2 and HMAC signatures, POST policy documents, S3-style multipart uploads,
// virtual-hosted addresses, batch requests, holds, retention and lifecycle rules, bucket settings
// other than cors and labels, matchGlob and filter in listings, and gRPC. Requests for them get 501
// and have no other effect. One difference causes no error: production unpacks gzip for readers
// that do not accept it, but here all readers get the stored bytes. An object's Content-Encoding is
// kept and shown.
package storage
