// Package firestore is an embedded server for google.firestore.v1, on which
// Google's own clients run: in tests without a port, in small installations on a
// data file. It is meant to be as strict as production, so that what passes here
// passes there.
//
//	s, err := firestore.Open(firestore.Options{Path: "data.db", Indexes: indexes})
//	c, err := s.Client(ctx, "my-project")   // Google's client, without a port
//	addr, err := s.Listen("127.0.0.1:8080") // or FIRESTORE_EMULATOR_HOST=127.0.0.1:8080
//
// # What it promises
//
//   - A commit that was answered is on disk: it survives kill -9 of the process,
//     and as far as the disk keeps its word a power cut. Commits that arrive while
//     the disk is busy share the next fsync.
//   - A document and its index entries change in one transaction of the data file,
//     therefore no crash can tear them apart.
//   - Transactions are serializable, queries and documents that were not there
//     included. Every read sees one moment, and all that was answered before.
//   - Reads do not wait for the disk, nor for transactions.
//   - A query with a limit looks at about as many documents as it answers, as long
//     as an index fits: the declared composite indexes, and for collections of more
//     than 1,000 documents indexes that the first query of their kind builds. That
//     first query waits (some seconds at a million documents) and so do commits.
//   - A file opens at once whatever its size: documents and indexes stay in it and
//     are read through the page cache. New declarations are built when the file is
//     opened.
//   - One process at a time has a file open, and a file written by a newer version
//     is refused; both are said in a sentence.
//
// # What it refuses
//
// Queries without a fitting index, when Options.Indexes are given: with production's
// FailedPrecondition, collection groups and field exemptions included. A query that
// production would answer by merging two composite indexes is refused too. Limits of
// size, depth, names, disjunctions and combinations of filters are production's; the
// less obvious were found by comparing random operations with Google's emulator,
// which TestDifferential does wherever that is installed.
//
// # When transactions meet
//
// See Mode. By default a write to a document that a transaction has read waits for
// it, and is Aborted after Options.LockTimeout; of two transactions that wait for
// each other one is Aborted at once. Plain reads never wait. A transaction may ask to be
// optimistic (TransactionOptions.ReadWrite.ConcurrencyMode): it locks nothing and is
// Aborted at commit when what it read has changed. A transaction without calls for
// a minute is given up.
//
// # Listening
//
// A stream may follow several targets. A change is sent only to targets that it may
// concern; those with a limit or an offset are evaluated again, others are told the
// difference. All changes of one commit come in one snapshot, in the order of commits. A
// client that comes back with its resume token within a minute (and after a restart,
// if nothing was committed since) is sent what has changed; later it is told to reset.
//
// # Testing with it
//
// Faults injects aborts, outages, delays, lost answers and a full disk. Stats and
// MaxSustainedWrites count calls, and writes per document and second, which production
// limits to about one. Options.Clock sets the time of commits, of expiry by the
// time-to-live fields of the index files, and of idle transactions.
//
// # Known gaps
//
// States are readable for a minute (less after 64 MiB of changes), not for an hour.
// The Write stream of browsers, calls that write a single document (client libraries
// commit it instead), pipelines, vector search and query explanation are answered with
// Unimplemented. The limit of 40,000 index entries per document and
// security rules are not enforced. Index entries count toward the 10 MiB that one
// commit may change only with Options.Indexes. Values of more than 1,500 bytes are sorted by all
// of their bytes, where production looks at the first 1,500 only. REST is not spoken.
package firestore
