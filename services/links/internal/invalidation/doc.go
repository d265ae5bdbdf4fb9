// Package invalidation keeps the in-memory caches of all replicas coherent: when an edit or a
// delete returns, no replica serves the old state.
//
// # The log
//
// After a change is committed and before the response, an [Announcer] writes the change to a log
// in Redis. An entry contains the keys that changed: slugs, host names, accounts. A redirect to a
// cached link waits for a call to a Redis script, which returns all entries since this replica's
// last call. Package clicks makes this call, which also appends the click. Responses that depend on
// a changed key are resolved again; all others are sent. A change therefore costs each replica one
// reload of the changed record, and does not affect unrelated redirects.
//
// The log is split into partitions by slug. Each partition has its own head, so several Redis
// servers can share the work. A response depends on one slug, and only that slug's partition
// confirms it. Hosts and accounts are announced to every partition.
//
// Entry numbers increase and are never lower than the server's clock in microseconds, so a server
// that has lost its last entries never reuses their numbers. Each entry contains the previous
// entry's number, so a reader detects trimmed entries. The log is bounded in bytes.
//
// # States of a replica
//
// A [Follower] is a replica's view of one partition.
//
//	state      known changes                  allowed responses
//	---------  -----------------------------  ------------------------------------------
//	Synced     all changes up to the last     entries up to 30 s old, after a call that
//	           call                           confirms them
//	Uncertain  unknown: Redis has not         only records that are read from Firestore
//	           answered for less than a       again
//	           second, but other replicas
//	           may still receive changes
//	Away       unknown: Redis is unreachable  entries up to 5 s old, unconfirmed
//
//	event                                      from       to         effect on memory
//	-----------------------------------------  ---------  ---------  --------------------------
//	call returns: nothing new                  Synced     Synced     none
//	call returns: entries up to the head       Synced     Synced     changed keys are dropped
//	call returns: entries, more to come        Synced     Synced     changed keys are dropped;
//	                                                                 another call is made
//	                                                                 before the response
//	call returns: entries were trimmed         Synced     Synced     everything is reloaded
//	call returns: different log (see below)    Synced     Synced     everything is reloaded
//	call times out                             Synced     Uncertain  see the table above
//	connection is refused                      Synced     Away       see the table above
//	a second passes                            Uncertain  Away       see the table above
//	call returns within the redirect's budget  Uncertain, Synced     as for Synced
//	                                           Away
//
// A replica has found a "different log" if the head has a different epoch, or a lower number than
// the replica has already read. After a restart or a failover, a server may have lost entries even
// though its head looks plausible. Its empty script cache reveals this because Redis neither
// persists nor replicates scripts. A replica that gets NOSCRIPT starts a new epoch before it loads
// its script, so no replica can run a script on a changed server and still see the old epoch. A
// primary that was demoted and then promoted again without a restart still has its scripts. To
// cover this case, the flusher compares the server's run ID once per second.
//
// # Remaining stale responses
//
// If the replica that makes a change cannot reach Redis, it responds after [announceBudget] and
// repeats the announcement in the background. It does not reject the change: if it did, losing one
// connection would block all changes. Replicas that can reach Redis may serve the old state until
// their entries expire, for at most 30 s. Replicas that cannot reach Redis may serve it for at most
// 5 s. The same 30 s limit applies if a replica is killed between its commit and its announcement.
// Repeating the create, edit, takedown or delete announces the change again, which ends this period
// early.
//
// A new link with a generated slug is not announced. It cannot have been visited before, so no
// replica has cached that it does not exist.
package invalidation
