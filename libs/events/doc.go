// Package events describes changes that services make: an [Event], its [Type] and its
// [Actor]. Package outbox writes them.
//
// A store writes one [Event] for each change to a visible field, in the same transaction as the
// change. So every committed change has an event, and a change that is not committed has none.
// libs/record writes the event together with the record and wakes the events service after the
// commit.
//
// Data is the record as the API returns it after the change. For a deletion, it is the record as
// the API returned it before the deletion. It never contains credentials such as keys, passwords or
// signed URLs. The service passes its store a function that creates Data.
//
// # Who acted
//
// [ActorOf] returns the key or member of the request's principal. Handlers in the operator's API
// mark their context with [AsOperator]. If there is no request, the actor is the system.
//
// # What happens next
//
// A document in the "events" collection is pending until it has a position in its account's feed.
// The events service reads pending documents in commit order, numbers them, and moves them in one
// commit to the account's document in "feeds". When that document is full, its events become a
// page. A number becomes visible only together with all lower numbers, so a reader who asks for
// events after a number never misses any, even if a commit is late. An event without a number does
// not appear in any feed and is not sent to any webhook. Numbering takes milliseconds if Redis
// wakes the service, and seconds otherwise.
package events
