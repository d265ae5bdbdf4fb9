// Package clicks counts every visit exactly once.
//
// # Producer
//
// Every redirect that was answered from memory waits for [Log.Confirm]. Waiting
// redirects are gathered and travel in one Redis script call: while one call is
// in flight the next batch forms, so batches grow with the load and the cost of a
// redirect falls. The script appends the batch to a stream and, in the same call,
// returns which links have changed since this replica last asked (package
// invalidation). A visitor is answered when the click is durable and nothing that
// the answer depends on has changed. If it has, the redirect is resolved again;
// its click is in the log already and is taken back by [Log.Undo] if it turns out
// to belong to another link or to none.
//
// When Redis does not answer within [Config.Budget], batches go to a file on
// local disk. A probe returns to Redis as soon as it answers in time: new clicks
// go there directly at once, while the file is drained behind them, many batches a
// call. Both have numbers of their own, so neither waits for the other.
//
// A Redis that is full refuses clicks but still confirms answers; the clicks go to
// the file until the flusher has made room. The click log is bounded in bytes
// below that, because Redis has other work.
//
// # Exactly once
//
// A process numbers its batches in two sequences: "live" for those sent directly,
// "late" for those that went through the file. The script skips a number that it
// has (a first try did arrive) and reports one that leaves a gap (Redis has lost
// data): then the producer sends again what it kept of the last seconds. A gap is
// accepted only for batches that nobody keeps any more. The flusher stores, in the
// same Firestore transaction as the counts, up to which number each sequence is
// counted, and skips what it reads again. So neither a kill of any part, nor a
// lost answer, nor an emptied Redis loses or doubles a click, with two exceptions:
//
//   - Redis writes its file once a second. If it loses its last moments and the
//     producer is killed as well before it could send them again, they are lost.
//   - A file is lost with its disk, and a full file takes no more.
//
// Both are metered: gaps in a sequence by the flusher, clicks that no file took by
// the producer. Every process registers in Redis and signs off when its file is
// empty; one that never does is metered as missing.
//
// # Flusher
//
// For each partition one replica at a time, by a lease in Redis, adds up the
// stream and writes one increment per link and cycle. The lease only saves work:
// two flushers at once notice each other in the transaction. How much one cycle
// takes is bounded in bytes and halved when a write fails. What Firestore refuses
// for good is narrowed down to one link's counts, set aside for an operator and
// metered; the rest is counted.
//
// No address of a visitor enters this package.
package clicks
