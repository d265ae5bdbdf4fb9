package standalone

import (
	"context"
	"fmt"
	"time"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth"
)

// demo sees to a working key for each plan. The keys are kept beside the data; one
// that somebody revoked is replaced.
func (s *Stack) demo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	db, err := firestoredb.Open(ctx, firestoredb.Config{Project: project, Endpoint: s.firestore})
	if err != nil {
		return fmt.Errorf("demo accounts: %w", err)
	}
	defer func() { _ = db.Close() }()
	for _, plan := range identity.Plans() {
		key, err := auth.EnsureDemo(ctx, db, plan, s.secrets.Keys[plan.String()])
		if err != nil {
			return fmt.Errorf("demo accounts: %w", err)
		}
		s.secrets.Keys[plan.String()] = key
	}
	s.Keys = s.secrets.Keys
	return s.dir.saveSecrets(s.secrets)
}
