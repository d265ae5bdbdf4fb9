// Package libs is the root of the module that every Linkreel service shares;
// it holds no code of its own. Read this page first: it has the words that the
// code is written in.
//
//	account     whose everything is. An id, a plan, limits, and a standing.
//	member      a person of an account, with a role.
//	principal   on whose behalf a request acts: a key's account, or a member who
//	            is signed in (identity.Principal).
//	record      what an account has: a link, a domain, a video, a webhook, a key.
//	            A record of another account is not there.
//	kind        what one sort of record is: its document, its events, its limit
//	            (record.Kind).
//	change      one atomic step of a record, a transaction of Firestore
//	            (record.Tx). It decides on the record as it is and may run
//	            several times, so it has no other effect.
//	event       what a change was, written in the same commit (events.Event). The
//	            outbox keeps it until it has its place in the account's feed.
//	announce    tell every replica which of the things that it remembers have
//	            changed: after the commit, before the answer.
//	authority   what an account may do. Its version grows with each change, and
//	            no replica goes by an older one (apikey).
//	claim       places below a limit that a change has found and takes when it
//	            commits (quota).
//	standing    whether an account is active, suspended or being erased. auth
//	            decides it.
//	holder      a service that keeps records of accounts, to which auth says what
//	            it has decided (tenant.Holder).
//	erase       remove all records of an account, a page at a time, readable or
//	            not.
//	purge       remove from storage what a deleted video has left there.
//	due         the time at which a record wants to be looked at, in a bucket of
//	            the index, since times rise (record.Due).
//	set aside   put off by an hour what cannot be read, so that it hides nothing
//	            behind it.
//	lane        one of the ranges into which an index, a log or a queue is split,
//	            so that several can work on it.
//	lease       who works on something, until when; a fencing token is the number
//	            without which the writes of a former worker are refused.
//	hint        a message that may be lost: whoever waits for it also looks by
//	            itself. A wake-up is one.
//	replica     one running process of a service. Any number may run, and each
//	            may be killed at any time.
//	fence       what keeps one account from taking what all share. ARCHITECTURE.md
//	            lists them with their tests.
//
// The packages, from the ground up: apierr and identity are words that all others
// use; firestoredb, objectstore, redisdb and queue reach the stores; events, tenant,
// quota, tags, label and search are what records have in common; record puts these
// together; httpapi, apikey, peer and boot make a service of them.
package libs
