// Package clicks counts every visit exactly once.
//
// # Producer
//
// Every redirect that was resolved from memory waits for [Log.Confirm]. Waiting redirects
// share one call of a Redis script. While one call is in flight, the next batch collects. So
// batches grow with the load, and the cost of each redirect falls. The script appends the
// batch to a stream and, in the same call, returns which links have changed since this
// replica last asked (package invalidation). A visitor gets the response when the click is
// durable and nothing that the response depends on has changed. Otherwise the redirect is
// resolved again. Its click is already in the log. [Log.Undo] takes the click back if it
// turns out to belong to another link or to none.
//
// When Redis does not answer within [Config.Budget], batches go to a file on local disk. A
// probe switches back as soon as Redis answers in time. New clicks then go directly to Redis.
// At the same time the file is drained to Redis, many batches per call. New and drained
// batches are numbered separately, so neither waits for the other.
//
// If Redis is full, it refuses clicks but still confirms answers. The clicks go to the file
// until the flusher has made room. The click log has its own, smaller limit in bytes, because
// Redis also holds other data.
//
// # Exactly once
//
// A process numbers its batches in two sequences: "live" for batches sent directly, and
// "late" for batches that went through the file. The script skips a number that Redis has
// already, because then an earlier attempt has arrived. If a number leaves a gap, Redis has lost
// data. The script reports the gap, and the producer resends the batches of the last few
// seconds, which it has kept. The script accepts a gap only for batches that the producer no
// longer keeps. The flusher stores the last counted number of each sequence in the same
// Firestore transaction as the counts, and skips batches that it reads again. So a killed
// process, a lost response or an emptied Redis neither loses a click nor counts it twice, with
// two exceptions:
//
//   - Redis writes its data to disk once a second. If it loses the last second, and the
//     producer is killed before it can resend that second's clicks, they are lost.
//   - If the local disk is lost, so is the file. A full file takes no more clicks.
//
// Metrics show both. The flusher counts gaps in a sequence, and the producer counts clicks
// that did not fit into the file. Every process registers in Redis, and signs off once its
// file is empty. The flusher counts a process that stops without signing off as missing.
//
// # Flusher
//
// For each partition, a lease in Redis chooses one replica at a time. That replica adds up
// the stream and writes one increment per link and cycle. The lease only saves work: if two
// flushers run at once, they notice each other in the transaction. The size of a cycle is
// bounded in bytes, and is halved when a write fails. If Firestore permanently refuses a
// write, the flusher narrows it down to the counts of one link. It sets these aside for an
// operator, shows them in a metric, and counts the rest.
//
// This package never receives visitors' IP addresses.
package clicks
