// Package apikey decides, for each request, whose key it carries and whether
// the account may still ask something this minute. Every service that takes API
// keys uses it; auth itself does too, with its store as the [Source].
//
// What it promises:
//
//   - A text that cannot be a key costs no I/O.
//   - A request with a known key costs one Redis round trip: one script takes a
//     token from the account's bucket and compares the cached record with the
//     account's version.
//   - Once the call that revoked a key, changed a plan or suspended an account
//     has answered, no replica accepts the old state on its next request. The
//     caller writes Firestore first, then calls [Client.InvalidateAccount], then answers.
//   - A record is never used more than 5 seconds after it was verified without
//     asking again, whatever Redis says. So without Redis, or with a Redis that
//     went back in time, a revocation takes at most 5 seconds.
//   - When auth cannot be reached either, known keys work until their record is
//     30 seconds old; then, and for unknown keys at once, the answer is
//     UNAVAILABLE, never a false 401.
//   - Losing Redis changes the limit from "for the account" to "for the account
//     and replica"; it never fails a request.
//
// # How staleness is noticed
//
// Each account has one hash in Redis: its version v, an incarnation e (when the
// hash was made, to the microsecond), and the bucket t of its keys, with one more,
// t:<member>, for the sessions of each member. The version also lives in the
// account's document, grows with each change of authority, and comes with each
// verified record. A record whose version is lower than v is out of date. The
// incarnation tells a hash that has lived on from one that was made after Redis
// lost its data: a record counts under e only if its verification began after e
// was seen, so an emptied Redis makes every replica verify once more instead of
// reviving a revoked key.
package apikey
