// Package clicks counts every visit exactly once.
//
// # Producer
//
// Every redirect that was answered from memory waits for [Log.Confirm]. Waiting
// redirects share one Redis script call: while one call is in flight the next batch
// forms, so batches grow with the load and the cost of a redirect falls. The script
// appends the batch to a stream and, in the same call, returns which links have
// changed since this replica last asked (package invalidation). A visitor is answered
// when the click is durable and nothing that the answer depends on has changed.
// Otherwise the redirect is resolved again. Its click is already in the log; [Log.Undo]
// takes it back if it turns out to belong to another link or to none.
//
// When Redis does not answer within [Config.Budget], batches go to a file on local
// disk. A probe switches back as soon as Redis answers in time. New clicks then go to
// Redis directly, while the file is drained at the same time, many batches per call.
// New and drained batches are numbered separately, so neither waits for the other.
//
// A Redis that is full refuses clicks but still confirms answers; the clicks go to the
// file until the flusher has made room. The click log has a smaller limit of its own, in
// bytes, because Redis has other work.
//
// # Exactly once
//
// A process numbers its batches in two sequences: "live" for batches sent directly,
// "late" for those that went through the file. The script skips a number that Redis has
// already, because an earlier try did arrive. If a number leaves a gap, Redis has lost
// data. The script reports the gap, and the producer resends the batches of the last
// seconds, which it has kept. The script accepts a gap only for batches that the producer
// no longer keeps. The flusher stores the last counted number of each sequence in the
// same Firestore transaction as the counts, and skips batches that it reads again. So no
// kill, lost answer or emptied Redis loses a click or counts it twice, with two
// exceptions:
//
//   - Redis writes its file once a second. If it loses its last moments, and the
//     producer is killed before it can resend them, their clicks are lost.
//   - A file is lost with its disk, and a full file takes no more clicks.
//
// Both are metered. The flusher meters gaps in a sequence, and the producer meters clicks
// that did not fit into the file. Every process registers in Redis and signs off when its
// file is empty. The flusher meters a process that never signs off as missing.
//
// # Flusher
//
// For each partition one replica at a time, chosen by a lease in Redis, adds up the
// stream and writes one increment per link and cycle. The lease only saves work: two
// flushers at once notice each other in the transaction. The size of a cycle is bounded
// in bytes, and halved when a write fails. If Firestore refuses a write for good, the
// flusher narrows it down to one link's counts, sets these aside for an operator and
// meters them. It counts the rest.
//
// No visitor's IP address enters this package.
package clicks
