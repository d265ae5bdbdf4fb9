// Package apikey authenticates each request's key and applies the account's rate limit. Every
// service that accepts API keys uses it, including auth, which uses its own store as the [Source].
//
// The package guarantees the following:
//
//   - Malformed keys are rejected without I/O.
//   - A request with a known key costs one Redis round trip: one script takes a
//     token from the account's bucket and compares the cached record with the
//     account's version.
//   - Once a call that revokes a key, changes a plan or suspends an account has returned, no
//     replica accepts the old state. The caller writes to Firestore first, then calls
//     [Client.InvalidateAccount], then returns.
//   - A record that was verified more than 5 seconds ago is verified again, regardless of
//     Redis. Without Redis, or after Redis was restored from older data, a
//     revocation takes effect within 5 seconds.
//   - If auth is unreachable too, known keys work until their record is 30 seconds old. After that
//     the response is UNAVAILABLE, never a false 401. Unknown keys get UNAVAILABLE immediately.
//   - Without Redis, each replica applies the account's limit on its own. Requests do not fail
//     because of that.
//
// # How staleness is detected
//
// Each account has one hash in Redis. It holds the account's version v and an incarnation e: the
// time at which the hash was created, in microseconds. Each bucket has its own Redis key, which
// ends in :t for the account's API keys and in :t:<member> for a member's sessions. The version is
// also stored in the account's document. It increases with each change in authority, and every
// verified record includes it. A record whose version is lower than v is stale. The incarnation
// changes when Redis loses its data and the hash is created again. A replica uses a record under e
// only if the record's verification began after the replica saw e. So if Redis is emptied, every
// replica verifies its records again, and revoked keys do not become valid again.
package apikey
