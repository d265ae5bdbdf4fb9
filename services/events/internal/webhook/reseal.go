package webhook

import (
	"context"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Sealed is a webhook and the state of its secrets.
type Sealed struct {
	ID    string
	State SealState
}

// SealState is how a webhook's secrets are sealed.
type SealState int

// The states.
const (
	// SealCurrent needs nothing: the first key seals every secret that can be opened.
	SealCurrent SealState = iota
	// SealOlder needs an older key, or does not name its key.
	SealOlder
	// SealLost cannot sign: no key opens any of the secrets in use.
	SealLost
)

var sealedByOlderKeys = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "linkreel_webhooks_sealed_by_older_keys",
	Help: "Webhooks with a secret that an older key of LINKREEL_WEBHOOK_SECRET_KEY seals, at the last look. " +
		"0 on every replica: the older keys can be dropped.",
})

// showSealed makes the gauge visible. It has no value until everything was looked at.
var showSealed = sync.OnceFunc(func() { prometheus.MustRegister(sealedByOlderKeys) })

// looks are what [Service.Reseal] remembers between its rounds.
type looks struct {
	full   int // rounds until the next full look; -1: none
	missed int // what the last one could not reseal
}

// fullAgain is the number of rounds until the next full look, if a full look could not
// reseal everything.
const fullAgain = 60

// Reseal takes secrets that an older key seals, and seals them with the first key.
// The first look reads every webhook, to find those that do not name their key and
// those that no key opens. Later looks cost one query, or nothing with a single key.
func (s *Service) Reseal(ctx context.Context) error {
	m := &s.looks
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
	sealedByOlderKeys.Set(float64(max(left, m.missed)))
	showSealed()
	return nil
}

// look reseals what it finds. left counts the webhooks that failed.
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
				// Continue after a failure, so that one webhook does not block the rest.
				if err := s.store.Reseal(ctx, w.ID); err != nil {
					if ctx.Err() != nil {
						return 0, err
					}
					slog.WarnContext(ctx, "cannot reseal a webhook's secret; a later round retries", "webhook", w.ID, "error", err)
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
