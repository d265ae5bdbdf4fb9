// Package invalidation keeps the in-memory caches of all replicas coherent: when an edit or a
// delete returns, no replica serves the old state.
//
// # The log
//
// After the commit of a change, and before the request is answered, an [Announcer] writes the
// change to a log in Redis. An entry names the keys that changed: slugs, host names, accounts.
// A redirect that was resolved from memory waits for a call of a Redis script, which returns
// all entries since this replica last asked. Package clicks makes this call, and the call
// also appends the click. Answers that depend on a named key are resolved again; all others
// are sent. So a change costs a replica one reload of the changed record, and it costs
// unrelated redirects nothing.
//
// The log is split into partitions by slug, each with its own head, so that
// several Redis servers can share the work. A response depends on one slug, and only that
// slug's partition confirms it. Hosts and accounts are announced to every partition.
//
// Entry numbers increase, and are never smaller than the server's clock in microseconds. So a
// server that has lost its last entries never reuses their numbers. Each entry contains
// the number of the entry before it, so a reader notices if entries in between were trimmed.
// The log is bounded in bytes.
//
// # What a replica knows
//
// A [Follower] is a replica's view of one partition.
//
//	state      what it knows                  what it may answer
//	---------  -----------------------------  ------------------------------------------
//	Synced     everything up to the last      entries up to 30 s old, after a call that
//	           call                           confirms them
//	Uncertain  Redis is silent for less than  nothing that was loaded before the silence:
//	           a second; other replicas may   every response is read from Firestore again
//	           still receive changes
//	Away       Redis is away                  entries up to 5 s old, unconfirmed
//
//	event                                      from       to         effect on memory
//	-----------------------------------------  ---------  ---------  -----------------------
//	call answers: nothing new                  Synced     Synced     none
//	call answers: entries up to the head       Synced     Synced     named keys are dropped
//	call answers: entries, more to come        Synced     Synced     named keys are dropped;
//	                                                                 asks again before it answers
//	call answers: entries were trimmed         Synced     Synced     everything is reloaded
//	call answers: another log (see below)      Synced     Synced     everything is reloaded
//	call times out                             Synced     Uncertain  as the table above
//	connection is refused                      Synced     Away       as the table above
//	a second passes                            Uncertain  Away
//	call answers within the redirect's budget  Uncertain,            as for Synced
//	                                           Away       Synced
//
// A replica has found "another log" if the head has a different epoch, or a lower number than
// the replica has read already. After a restart or a failover, a server may have lost entries
// although its head looks plausible. Its empty script cache reveals this, because Redis
// neither stores nor replicates scripts. A replica that gets NOSCRIPT starts a new epoch
// before it loads its script. So no replica can run a script on a changed server and still
// see the old epoch. A former primary that was demoted, and promoted again without a restart,
// still has its scripts. For that case the flusher compares the server's run id once a
// second.
//
// # What remains
//
// If the replica that makes a change cannot reach Redis, it answers after [announceBudget] and
// repeats the announcement in the background. It does not refuse the change, because then the
// loss of one connection would stop all changes. Replicas that do reach Redis may serve the
// old state until their entries expire, for at most 30 s. Replicas that do not reach Redis may
// serve it for at most 5 s. The same limit of 30 s applies if a replica is killed between its
// commit and its announcement. A repeated create, edit, takedown or delete announces the
// change again, which ends this period early.
//
// A new link with a generated slug is not announced. Nobody can have visited it before, so no
// replica has cached that it did not exist.
package invalidation
