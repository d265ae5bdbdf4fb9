// Package backup copies the records and objects from a running local cloud into a folder, and
// restores them into an empty one. [Copy] passes the same state to another program.
//
// # What it promises
//
//   - A backup is a consistent snapshot of all records and all objects at one point in time. It
//     contains every write that was acknowledged before it started. Writes continue while a backup
//     runs.
//   - An object's bytes are copied once. Later backups in the same folder only refer to them.
//   - A backup appears in the folder only when it is complete. If it is killed or the disk is
//     full, the earlier backups are unaffected, and the next attempt reuses the bytes that were
//     already copied.
//   - Every file has a checksum, and a restore checks all of them. A restore that fails or is
//     killed leaves a folder that no server will open.
//   - A backup does not contain any keys. [Manifest.Keys] names the keys that open its
//     sealed values.
//   - With an age recipient, everything is encrypted except manifests and file names.
//
// # The folder
//
//	lock                                 held by a running backup
//	objects/ID.SHA256[.age-RECIPIENT]    the bytes of an object
//	2026-11-26T02-30-00Z/                one backup; its name ends in .part until it is complete
//	  records.gz[.age]                   the documents, each preceded by its length
//	  index.gz[.age]                     the index of the objects, with one JSON value per line
//	  manifest.json                      see [Manifest]; locked while a restore reads the backup
//	  SHA256SUMS                         for sha256sum -c
//
// A backup does not contain unfinished uploads. Clients must restart them after a restore.
package backup
