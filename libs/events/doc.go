// Package events describes changes that services make: an [Event], its [Type] and its
// [Actor]. Package outbox writes them.
//
// A store writes one [Event] for each change of a visible field, in the same
// transaction as the change. So every change that commits has its event, and a change
// that does not commit has none. libs/record writes the event with each record and wakes
// the events service after the commit.
//
// Data is the record as the API shows it right after the change. For a deletion it is the
// record as the API last showed it. It contains no credentials: no key, password or
// signed URL. The service gives its store a function that makes Data.
//
// # Who acted
//
// [ActorOf] finds the key or the member in the request's principal. The operator's
// handlers mark their context with [AsOperator]. The actor of work without a request is
// the system.
//
// # What happens next
//
// A document in the collection "events" waits for a place in its account's feed. The events
// service reads waiting documents in the order of their commits, numbers them, and moves
// them in one commit into the account's document in "feeds". When that document is full,
// its events become a page. A number is visible only together with all lower ones, so a
// reader who asks for events after a number misses none, however late a commit was. Until
// it has a number, an event is in no feed and sent to no webhook. That takes milliseconds
// while Redis wakes the service, and seconds otherwise.
package events
