// Package invalidation keeps the memories of all replicas coherent: when an edit
// or a delete returns, no replica serves the old state.
//
// # The log
//
// After the commit of a change, and before the request is answered, an [Announcer]
// writes the change to a log in Redis. An entry names the keys that changed: slugs, host
// names, accounts. A redirect that was answered from memory waits until a Redis script
// call has returned everything announced since this replica last asked. Package clicks
// makes this call and appends the click in it. Answers that depend on a named key are
// resolved again; all others are sent. So a change costs a replica one reload of the
// changed record, and it costs unrelated redirects nothing.
//
// The log is split into partitions by slug, each with its own head, so that
// several Redis servers can share the work. An answer depends on one slug and is
// confirmed by that slug's partition alone; hosts and accounts are announced to
// every partition.
//
// The numbers of entries rise, and are never smaller than the server's clock in
// microseconds. A server that lost its last entries therefore never reuses their
// numbers. Each entry names the number of the entry before it, so a reader notices when
// entries in between were trimmed. The log is bounded in bytes.
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
//	           a second; other replicas may   every answer is read from Firestore again
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
// A replica has found "another log" if the head has a different epoch, or a lower number
// than the replica has read already. After a restart or a failover a server may have lost
// entries although its head looks plausible. Its script cache shows this, because Redis
// neither stores nor replicates scripts. A replica that gets NOSCRIPT starts a new epoch
// before it loads its script, so no replica can run a script on a changed server and
// still see the old epoch. A former primary that was demoted and promoted again without
// a restart still has its scripts. For that case the flusher compares the server's run
// id once a second.
//
// # What remains
//
// If the replica that makes a change cannot reach Redis, it repeats the
// announcement in the background and answers after [announceBudget]: refusing
// would turn the loss of one connection into an outage of all changes. Replicas
// that do reach Redis may then serve the old state until their entries expire, for at
// most 30 s. Replicas that do not reach Redis may serve it for at most 5 s. The same 30 s
// apply if a replica is killed between its commit and its announcement. A repeated create,
// edit, takedown or delete announces the change again, which ends this period early.
//
// A new link with a generated slug is not announced. Nobody can have visited it before, so
// no replica remembers that it did not exist.
package invalidation
