// Package record stores accounts' records. All services use it to read, list, count and change an
// account's records.
//
// A [Kind] describes a kind of record. The package derives everything else from it:
//
//	Kind            gives
//	----            -----
//	Of, Absent      other accounts' records look as if they did not exist
//	Doc, From       Get, All, Page, Find, Count
//	Object, Shown   its events, in the change's commit; its lines in an export
//	Limit           room for a new record, claimed in the commit that uses it
//	Labels          the account's list of tags
//	Beside          its other documents and its announcements, with each change
//	Doc with [Due]  the time at which the record is next processed
//	in a [Set]      it is exported, and erased with its account
//
// Every change is a [Tx]. It reads records, decides what to change, and registers its writes. The
// package makes all writes at the end in one commit, together with the events, and announces the
// change after that commit. Each write requires the type of its event, or [events.Quiet], so
// callers cannot forget the event.
//
// A record that cannot be decoded does not block others: a queue sets it aside for an hour, an
// export lists its id, and an erasure deletes it anyway.
//
// The package does not hide Firestore. A store that needs its own query or document creates it with
// the client library, and uses [Tx]'s and firestoredb's reads and writes.
package record
