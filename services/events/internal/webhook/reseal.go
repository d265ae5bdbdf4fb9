package webhook

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

// Sealed is a webhook, and the state that its secrets are in.
type Sealed struct {
	ID    string
	State SealState
}

// SealState is how a webhook's secrets are sealed.
type SealState int

// The states.
const (
	// SealCurrent needs nothing: the first key seals what can be opened at all.
	SealCurrent SealState = iota
	// SealOlder needs an older key, or does not name its key.
	SealOlder
	// SealLost cannot sign: no key opens any secret that is in force.
	SealLost
)

// sealMetrics answer whether a key may be dropped.
type sealMetrics struct {
	older atomic.Int64 // -1: nobody has looked yet

	full, missed int // rounds until the next full look, -1: none; what the last one left
}

func newSealMetrics() *sealMetrics {
	m := &sealMetrics{}
	m.older.Store(-1)
	_, err := otel.Meter("events").Int64ObservableGauge("linkreel.webhooks.sealed_by_older_keys", metric.WithUnit("{webhook}"),
		metric.WithDescription("Webhooks with a secret that an older key of LINKREEL_WEBHOOK_SECRET_KEY seals, at the last look. "+
			"0 on every replica: the older keys can be dropped."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			if n := m.older.Load(); n >= 0 {
				o.Observe(n)
			}
			return nil
		}))
	if err != nil {
		otel.Handle(err)
	}
	return m
}

// fullAgain is after how many rounds everything is looked at once more when a look at
// everything left something.
const fullAgain = 60

// Reseal seals again, with the first key, what an older key seals.
// The first look is at every webhook: it finds those that do not name their key, and
// those that no key opens. Later ones cost a query, or nothing with a single key.
func (s *Service) Reseal(ctx context.Context) error {
	m := s.seals
	all := m.full == 0
	left, err := s.look(ctx, all)
	if err != nil {
		return err
	}
	if m.full > 0 {
		m.full--
	}
	if all && left > 0 {
		m.full, m.missed = fullAgain, left
	} else if all {
		m.full, m.missed = -1, 0
	}
	m.older.Store(int64(max(left, m.missed)))
	return nil
}

// look seals again what it finds. left is how many it could not.
func (s *Service) look(ctx context.Context, all bool) (left int, err error) {
	var again, lost int
	for after := ""; ; {
		page, err := s.store.Seals(ctx, all, after)
		if err != nil {
			return 0, err
		}
		if len(page) == 0 {
			break
		}
		for _, w := range page {
			after = w.ID
			switch w.State {
			case SealCurrent:
			case SealLost:
				lost++
			case SealOlder:
				// One that cannot be written keeps no other from its turn.
				if err := s.store.Reseal(ctx, w.ID); err != nil {
					if ctx.Err() != nil {
						return 0, err
					}
					slog.WarnContext(ctx, "a webhook's secret is not sealed again", "webhook", w.ID, "error", err)
					left++
					continue
				}
				again++
			}
		}
	}
	if all || again+left > 0 {
		slog.InfoContext(ctx, "webhooks' secrets sealed again with the first key", "webhooks", again, "left", left)
	}
	if all && lost > 0 {
		slog.ErrorContext(ctx, "no key in LINKREEL_WEBHOOK_SECRET_KEY opens the secrets of some webhooks; "+
			"put the key that sealed them back, behind the present one", "webhooks", lost)
	}
	return left, nil
}
