// Package record keeps records of accounts: the one way in which a service reads,
// lists, counts and changes what belongs to an account.
//
// A [Kind] says what a kind of record is. All that such a record needs follows from it:
//
//	Kind            gives
//	----            -----
//	Of, Absent      a record of another account is not there
//	Doc, From       Get, All, Find, Count
//	Object, Shown   its events, in the commit of the change; its lines of an export
//	Limit           room for a new one, claimed in the commit that takes it
//	Labels          the account's list of tags
//	Beside          its other documents and its announcements, with each change
//	Doc with [Due]  a time at which to come back to it
//	in a [Set]      it is exported, and leaves when its account leaves
//
// Every change is a [Tx]. It reads, decides, and says what to write; the kit writes it
// all at the end, with the events, in one commit, and announces it after that commit. The
// domain decides: each write takes the event that it is, or [events.Quiet]. Nobody can
// write and forget to say what it was.
//
// A record that cannot be read keeps nothing behind it from being seen: a queue sets it
// aside for an hour, an export names it, and an erasure removes it all the same.
//
// The kit does not hide Firestore. A store that needs a query or a document of its own
// makes it with the client, and uses the reads and writes of [Tx] and of firestoredb.
package record
