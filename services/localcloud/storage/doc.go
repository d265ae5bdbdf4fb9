// Package storage is an embedded object store for local runs, tests and small installations. To a
// Google Cloud Storage client, it behaves like Cloud Storage.
//
// # Promises
//
// A Server has two sides. PublicHandler may be exposed to the Internet. It serves the XML API, in
// which every request needs a V4 signature over its method, host, path, query and signed headers.
// The signature must be made with a key that the server knows, and it must not have expired. The
// server rejects a signed URL that was altered, has expired, or is used for a different object or
// method. The client need not send any headers that were not signed. It may add an unsigned
// Content-Type. APIHandler is for your own services. It serves the JSON API with a bearer token
// (Options.Token), on a private listener.
//
// Acknowledged data is synced to disk. Each object's bytes are in a separate file, and everything
// else is in an index that changes in one transaction. After a crash, an object is either complete
// or absent, and an acknowledged part of a resumable upload is kept. The next Open removes leftover
// files. Concurrent small writes share disk syncs. Bytes are streamed, so memory use does not grow
// with the size of an object, and a slow upload does not delay other requests.
//
// Preconditions, generations and metagenerations, ranges, resumable sessions (308 and Range,
// overlaps, takeover of a hanging request), compose, copy, listing with prefixes and pages, CORS
// configured per bucket, and notifications in Pub/Sub push format work as documented for
// production.
//
// An upload through a signed URL may be at most Options.MaxUpload bytes long. All uploads leave
// Options.Reserve bytes of the volume free. The 507 InsufficientStorage error says how much space
// is free. The bytes can be stored in a separate directory (Options.ObjectsDir).
//
// # Known gaps
//
// The following are not implemented: object versions and soft delete (only the live object exists),
// ACLs and IAM, V2 and HMAC signatures, POST policy documents, S3-style multipart uploads,
// virtual-hosted URLs, batch requests, holds, retention and lifecycle rules, bucket settings other
// than cors and labels, matchGlob and filter in listings, and gRPC. Requests for them return 501
// and have no other effect. One difference does not cause an error: production decompresses gzip
// for readers that do not accept it, but this server returns the stored bytes to all readers. An
// object's Content-Encoding is stored and returned.
package storage
