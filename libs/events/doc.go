// Package events is the vocabulary of what services change: an [Event], its [Type] and
// its [Actor]. Package outbox writes them.
//
// A store writes one [Event] for each change of a shown field, in the very
// transaction that makes the change: libs/record does so with each record that it
// writes, and wakes the events service after the commit. A change that commits has its
// event and a change that does not has none.
//
// Data is the record as the API shows it right after the change (for a deletion,
// as it was last shown), without anything that opens something: no key, password
// or signed address. The service gives its store a function that makes it.
//
// # Who acted
//
// [ActorOf] finds the key or the member in the request's principal. The
// operator's handlers mark their context with [AsOperator]; whatever runs without
// a request is the system.
//
// # What happens next
//
// A document of the collection "events" waits. The events service gives it a place in
// its account's feed: it reads what waits in the order of commits, and moves it, numbered,
// in one commit into the account's document in "feeds". When that is full, its events
// become a page.
// A number is only ever visible together with all lower ones, so a reader who asks
// for what comes after a number misses nothing, however late a commit was. Until then it is
// in no feed and in no webhook, which takes milliseconds while Redis is there to
// wake the service and seconds otherwise.
package events
