// Package backup copies the records and objects of a running local cloud into a folder, and
// restores them into an empty one. [Copy] passes the same state to another program.
//
// # What it promises
//
//   - A backup is one state: all records of one moment, and all objects of the same moment.
//     Every write that was acknowledged before the backup began is in it. Writes continue
//     meanwhile.
//   - The bytes of an object are copied once. Later backups in the same folder only name
//     them.
//   - A backup appears in the folder at its end, whole. One that is killed, or that finds
//     the disk full, is no backup: the earlier ones stay as they are, and the next one
//     continues with the bytes that were copied.
//   - Every file has a checksum. A restore checks all of them. One that fails or is killed
//     leaves a folder that no server opens.
//   - It holds no key. [Manifest.Keys] names the keys that open its sealed values.
//   - With an age recipient, everything is encrypted but manifests and the names of files.
//
// # The folder
//
//	lock                                 held by a running backup
//	objects/ID.SHA256[.age-RECIPIENT]    the bytes of an object
//	2026-11-26T02-30-00Z/                one backup; its name ends in .part until it is complete
//	  records.gz[.age]                   documents, each after its length
//	  index.gz[.age]                     the index of objects, a line of JSON each
//	  manifest.json                      see [Manifest]
//	  SHA256SUMS                         for sha256sum -c
//
// Unfinished uploads are not in a backup. Their senders must start them again.
package backup
