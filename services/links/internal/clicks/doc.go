// Package clicks counts visits exactly once, and by the same round trip keeps
// redirects from answering with an old target.
//
// # Producer
//
// Every redirect that was answered out of the process's memory waits for
// [Log.Confirm]. Waiting redirects are gathered and travel in one Redis script
// call: while one call is under way the next batch forms, so the batch grows with
// the load and the call's cost per redirect falls. The script first looks at the
// log of invalidations. Had the process not heard the latest, nothing is
// appended; it hears them now, and redirects whose key was named resolve again.
// Else the batch of clicks is appended to a stream. So a visitor gets the
// answer only when the click is durable, and never one that is older than a
// change whose author already has an answer.
//
// When Redis does not answer within [Config.Budget], the batch and all later
// ones go to a file on local disk, in order, until a background loop has brought
// everything into the stream. Meanwhile redirects trust entries for a few
// seconds only; in the first second, when it may be a hiccup that other replicas
// do not share, they trust none and read each link anew.
//
// # Exactly once
//
// Batches are numbered per producer. The script refuses a number that it has
// (the first try had arrived after all) and one that leaves a gap (Redis has lost
// its data, or stepped back): then the producer sends again what it kept of the
// last seconds. The flusher stores, in the same Firestore transaction as the
// counts, up to which number each producer's batches are counted, and skips what
// comes again. So neither a kill of any part, nor a lost answer, nor an emptied
// Redis loses or doubles a click; what is lost beyond that (a full disk, a
// machine that dies with its spool) shows as a gap in numbers and is metered.
//
// # Flusher
//
// One replica at a time, by a lease in Redis, adds up the stream and writes one
// increment per link and cycle, a cycle being at least a second, and up to four
// when many links were clicked. The lease only saves work: two flushers at once
// notice each other in the transaction.
//
// No address of a visitor enters this package.
package clicks
