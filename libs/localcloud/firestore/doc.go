// Package firestore is an embedded server for google.firestore.v1: the real
// Google clients run against it, in tests without a port and in small
// installations on a data file.
package firestore
