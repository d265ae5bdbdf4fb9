package firestore

import "crypto/rand"

// newDocumentID is 20 letters and digits, like the ids that clients make.
func newDocumentID() string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	b := make([]byte, 0, 20)
	var random [40]byte
	for {
		_, _ = rand.Read(random[:]) // never fails
		for _, x := range random {
			if x < 248 { // 4 * 62: each letter equally likely
				if b = append(b, letters[x%62]); len(b) == 20 {
					return string(b)
				}
			}
		}
	}
}
