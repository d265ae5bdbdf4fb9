package standalone

import (
	"fmt"
	"slices"
	"strings"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"

	"github.com/linkreel/linkreel/services/localcloud/backup"
)

// unsealed lists the documents with values that only a lost key can open.
type unsealed struct {
	webhooks     []string // ids
	certificates []string // names of hosts and ACME accounts
}

// opens reports whether a document is still useful without the lost keys. A webhook is, since its
// owner can roll the secret. A certificate is not: a new one can simply be ordered.
func (r *restoring) opens(collection, path string, d *pb.Document) bool {
	for _, s := range sealed {
		if s.Collection != collection || !slices.ContainsFunc(backup.KeyIDs(d.GetFields()[s.Field]), func(id string) bool { return r.lost[id] }) {
			continue
		}
		_, id, _ := strings.Cut(path, "/")
		if s.Keys == certificateKey {
			r.unsealed.certificates = append(r.unsealed.certificates, id)
			return false
		}
		r.unsealed.webhooks = append(r.unsealed.webhooks, id)
	}
	return true
}

func (r *restoring) tellUnsealed() {
	if w := r.unsealed.webhooks; len(w) > 0 {
		_, _ = fmt.Fprintf(r.out, "Without the key, nothing is sent to these webhooks until their owners roll the secrets (%d): %s\n", len(w), strings.Join(w, " "))
	}
	if c := r.unsealed.certificates; len(c) > 0 {
		_, _ = fmt.Fprintf(r.out, "Left out, because their key is lost (%d): %s. New certificates are ordered on the next visit.\n", len(c), strings.Join(c, " "))
	}
}
