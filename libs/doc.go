// Package libs is the root of the module that every Linkreel service shares. It contains no code.
// Read this page first: it defines the terms used in the code.
//
//	account     owns records, members and keys. It has an id, a plan, limits, and a
//	            standing.
//	member      a person in an account, with a role.
//	principal   the caller of a request: a key's account, or a member who
//	            is signed in (identity.Principal).
//	record      an object that belongs to an account: a link, a domain, a video, a
//	            webhook, a key. Other accounts' records look as if they did not
//	            exist.
//	kind        a type of record. It determines the document, the events and the
//	            limit (record.Kind).
//	change      one atomic update of a record, in a Firestore transaction
//	            (record.Tx). It reads the current record and decides what to
//	            write. It may run several times, so it must not have other effects.
//	event       a description of a change, written in the same commit
//	            (events.Event). The outbox keeps it until it has a position in the
//	            account's feed.
//	announce    tell every replica which cached values are stale, after the
//	            commit and before the response.
//	authority   what an account may do. Its version increases with each change,
//	            and no replica acts on an older version (apikey).
//	claim       the part of a limit that a change wants to use. The change's
//	            commit takes it (quota).
//	standing    whether an account is active, suspended or being erased. auth
//	            decides it.
//	holder      a service that stores accounts' records. auth notifies it of
//	            each decision about an account (tenant.Holder).
//	erase       remove all of an account's records, a page at a time, even those
//	            that cannot be decoded.
//	purge       remove a deleted video's files from storage.
//	due         the time at which a record must be processed. The index of these
//	            times is split into buckets because Firestore accepts only a few
//	            writes a second to an index with increasing values (record.Due).
//	set aside   postpone by an hour a record that cannot be decoded and would
//	            otherwise block the records after it.
//	lane        one of the ranges into which an index, a log or a queue is split,
//	            so several processes can work on it.
//	lease       a worker's right to work on something until a certain time. A
//	            fencing token is a number that a write must carry, so writes by a
//	            previous worker are rejected.
//	hint        a message that can be lost without harm because its receiver
//	            also checks periodically. A wake-up is a hint.
//	replica     one running process of a service. Any number can run, and each
//	            can be killed at any time.
//	fence       a rule that keeps one account from using up a shared resource.
//	            ARCHITECTURE.md lists the fences with their tests.
//
// The packages, from the bottom up: apierr and identity define terms that all others use.
// firestoredb, objectstore, redisdb and queue access the stores. events, tenant, quota, tags, label
// and search implement the common parts of records. record combines them. httpapi, apikey, peer and
// boot turn them into a service.
package libs
