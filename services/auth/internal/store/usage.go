package store

import (
	"context"
	"fmt"

	"cloud.google.com/go/firestore"
	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// Usage counts an account's records by the other services' collections: the one
// place where auth looks at them, and only at how many there are.
func (s *Store) Usage(ctx context.Context, accountID string) (u account.Usage, err error) {
	err = s.db.Do(ctx, "count records", func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		for collection, n := range map[string]*int{"links": &u.Links, "videos": &u.Videos, "domains": &u.Domains} {
			g.Go(func() (err error) {
				*n, err = count(ctx, s.db.Collection(collection).Where("accountId", "==", accountID))
				return err
			})
		}
		return g.Wait()
	})
	return u, err
}

func count(ctx context.Context, q firestore.Query) (int, error) {
	found, err := q.NewAggregationQuery().WithCount("n").Get(ctx)
	if err != nil {
		return 0, fmt.Errorf("count: %w", err)
	}
	n, ok := found["n"].(*firestorepb.Value)
	if !ok {
		return 0, fmt.Errorf("count: answer without a number")
	}
	return int(n.GetIntegerValue()), nil
}
