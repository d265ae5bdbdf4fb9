// Package firestore is an embedded server for google.firestore.v1. Google's own clients work with
// it, both in tests without a port and in small installations with a data file. It is as strict as
// production, so code that works here also works there.
//
//	s, err := firestore.Open(firestore.Options{Path: "data.db", Indexes: indexes})
//	c, err := s.Client(ctx, "my-project")   // Google's client, without a port
//	addr, err := s.Listen("127.0.0.1:8080") // or FIRESTORE_EMULATOR_HOST=127.0.0.1:8080
//
// # What it promises
//
//   - An acknowledged commit is on disk. It survives kill -9 of the process and, if the disk
//     honours fsync, a power cut. Commits that arrive while the disk is busy share the next fsync.
//   - A document and its index entries change in one transaction on the data file, so a
//     crash cannot leave them inconsistent.
//   - Transactions are serializable. This includes their queries and the documents they found
//     missing. Every read sees the state at one point in time, including all commits acknowledged
//     earlier.
//   - Reads never wait for the disk or for transactions.
//   - A query with a limit reads about as many documents as it returns, if there is a suitable
//     index. Composite indexes can be declared. In collections of more than 100 documents, the
//     first query of each kind builds the index that it needs. That query and all commits wait
//     until the index is built, which takes a few seconds for a million documents.
//   - A file of any size opens immediately, because documents and indexes are read from it through
//     the page cache. Newly declared indexes are built when the file is opened.
//   - Only one process at a time can open a file, and a file written by a newer version
//     is rejected. Both errors state the reason.
//
// # What it rejects
//
// If Options.Indexes is set, a query without a suitable index fails with FailedPrecondition, as in
// production. Collection groups and field exemptions also work as in production. A query that
// production would answer by merging two composite indexes is also rejected. The limits on size,
// depth, names, disjunctions and combinations of filters are the same as in production. The less
// obvious ones were found by comparing random operations with Google's emulator; TestDifferential
// does this wherever the emulator is installed.
//
// # When transactions conflict
//
// See Mode. By default a write to a document that a transaction has read waits for that
// transaction, and is Aborted after Options.LockTimeout. If two transactions wait for each other,
// one of them is Aborted immediately. Plain reads never wait. A transaction may ask to be
// optimistic (TransactionOptions.ReadWrite.ConcurrencyMode): it does not lock anything and is
// Aborted at commit if anything that it read has changed. A transaction expires after a minute
// without calls.
//
// # Listening
//
// A stream may follow several targets. A change is considered only for targets that it may affect.
// Targets with a limit or an offset are re-evaluated. The other targets receive only the
// changes. All changes from one commit arrive in one snapshot, and snapshots arrive in commit
// order. A client that reconnects with its resume token within a minute receives only the changes.
// This also works after a restart if nothing has been committed since. After more than a minute,
// the server tells the client to discard its state.
//
// # Testing with it
//
// Faults injects aborts, outages, delays, lost responses and a full disk. Stats counts
// calls. MaxSustainedWrites finds the document with the most writes per second, which
// production limits to about one. Options.Clock sets the commit times. It also determines when
// idle transactions expire, and when documents expire by the time-to-live fields in the index
// files.
//
// # Known gaps
//
// Past states are readable for a minute instead of an hour, or less after 64 MiB of changes. The
// following are not implemented: the Write stream for browsers, calls that write a single document
// (client libraries call Commit instead), pipelines, vector search and query explanation. Security
// rules are not enforced. Without Options.Indexes, index entries do not count toward the 40,000
// that a document may have or the 10 MiB that one commit may change. Values of more than 1,500
// bytes are sorted by all of their bytes; production compares only the first 1,500. REST is not
// supported.
package firestore
