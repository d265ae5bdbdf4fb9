// Package clicks counts every visit exactly once.
//
// # Producer
//
// Every redirect to a cached link waits for [Log.Confirm]. Waiting redirects share one call to a
// Redis script. While one call is in flight, the next batch is collected. Batches therefore grow
// with the load, and the cost per redirect falls. The script appends the batch to a stream. In the
// same call, it returns the links that have changed since this replica's last call (package
// invalidation). A visitor gets the response once the click is durable, provided that nothing that
// the response depends on has changed. Otherwise the redirect is resolved again, even though its
// click is already in the log. If the click turns out to belong to another link or to none,
// [Log.Undo] undoes it.
//
// When Redis does not answer within [Config.Budget], batches are written to a file on local disk.
// As soon as Redis answers a probe in time, the process switches back. New clicks are then sent
// directly to Redis. At the same time, the file is drained to Redis, many batches per call. New and
// drained batches are numbered separately, so neither has to wait for the other.
//
// If Redis is full, it rejects clicks but still confirms responses. The clicks are written to the
// file until the flusher has freed memory. The click log has its own, smaller limit in bytes
// because Redis also stores other data.
//
// # Exactly once
//
// A process numbers its batches in two sequences: "live" for batches sent directly, and "late" for
// batches from the file. The script skips a number that Redis already has because an earlier
// attempt succeeded. A gap in the numbers means that Redis has lost data. The script reports the
// gap, and the producer resends the batches from the last few seconds, which it has kept. The
// script accepts a gap only for batches that the producer no longer keeps. The flusher stores the
// last counted number of each sequence in the same Firestore transaction as the counts, and skips
// batches that it reads again. If a process is killed, a response is lost or Redis is emptied,
// clicks are therefore neither lost nor counted twice, with two exceptions:
//
//   - Redis writes its data to disk once a second. If it loses the last second, and the
//     producer is killed before it can resend that second's clicks, they are lost.
//   - If the local disk is lost, its clicks are lost. Clicks that do not fit in the file are also
//     lost.
//
// Metrics show both. The flusher counts gaps in a sequence, and the producer counts clicks that did
// not fit in the file. Every process registers in Redis, and signs off once its file is empty. The
// flusher counts a process that stops without signing off as missing.
//
// # Flusher
//
// For each partition, a lease in Redis chooses one replica at a time. That replica adds up the
// stream and writes one increment per link per cycle. The lease only saves work: if two flushers
// run at once, they notice each other in the transaction. The size of a cycle is bounded in bytes,
// and is halved when a write fails. If Firestore permanently rejects a write, the flusher narrows
// the cause down to one link's counts. It sets these aside for an operator, reports them in a
// metric, and counts the rest.
//
// This package never receives visitors' IP addresses.
package clicks
