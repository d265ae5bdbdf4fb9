package store

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// Usage counts an account's records in the other services' collections, so an account can be shown
// while those services are down. This is the only place where auth reads those collections, and it
// reads only the number and size of the records.
func (s *Store) Usage(ctx context.Context, accountID string) (u account.Usage, err error) {
	err = s.db.Do(ctx, "count records", func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		count := func(collection string, n *int, sum *int64) {
			g.Go(func() error {
				records := s.db.Collection(collection).Where("accountId", "==", accountID)
				q := records.NewAggregationQuery().WithCount("n")
				if sum != nil {
					q = q.WithSum("bytes", "bytes")
				}
				found, err := q.Get(ctx)
				if err != nil {
					return fmt.Errorf("count %s: %w", collection, err)
				}
				*n = int(firestoredb.Number(found, "n"))
				if sum != nil {
					*sum = firestoredb.Number(found, "bytes")
				}
				return nil
			})
		}
		count("links", &u.Links, nil)
		count("videos", &u.Videos, &u.StoredBytes)
		count("domains", &u.Domains, nil)
		return g.Wait()
	})
	return u, err
}
