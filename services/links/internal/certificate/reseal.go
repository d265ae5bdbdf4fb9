package certificate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/linkreel/linkreel/libs/seal"
)

const (
	resealPage = 100
	// mostResealed bounds a round: renewals wait for its end.
	mostResealed = 500
)

// errCurrent is what a change returns when the first key seals the record already.
var errCurrent = errors.New("the first key seals it already")

var sealedByOlderKeys = prometheus.NewGauge(prometheus.GaugeOpts{Name: "linkreel_certificates_sealed_by_older_keys",
	Help: "Certificates, and the account at the authority, that an older key of LINKREEL_CERTIFICATE_KEY seals, at the last look. " +
		"0 on every replica: the older keys can be dropped."})

// showSealed makes the gauge visible. It has no value until everything was looked at.
var showSealed = sync.OnceFunc(func() { prometheus.MustRegister(sealedByOlderKeys) })

// look goes once through everything that older keys seal. It may take several rounds.
type look struct {
	after string // the last certificate that was tried
	left  int    // how many could not be sealed again
}

// reseal seals again, with the first key, what an older key seals, some in each round,
// so that the older key can be dropped. A record that cannot be sealed again keeps no
// other from its turn. What no key opens any more is not looked at.
func (s *Service) reseal(ctx context.Context) {
	l, older, tried, again, failed := &s.look, s.opt.Seal.OlderIDs(), 0, 0, 0
	var why error
	count := func(id string, err error) {
		switch {
		case err == nil:
			again++
		case !errors.Is(err, errCurrent):
			failed, why = failed+1, fmt.Errorf("%s: %w", id, err)
			l.left++
		}
	}
	ended := len(older) == 0
	for !ended && tried < mostResealed {
		page, err := s.opt.Store.SealedBy(ctx, older, l.after, resealPage)
		if err != nil {
			if ctx.Err() == nil {
				slog.WarnContext(ctx, "what older keys seal cannot be listed", "error", err)
			}
			break
		}
		for _, host := range page {
			tried++
			count(host, s.resealCertificate(ctx, host))
			if ctx.Err() != nil {
				return
			}
			l.after = host
		}
		if ended = len(page) == 0; ended {
			count("the account at the authority", s.opt.Account.reseal(ctx))
		}
	}
	if again+failed > 0 {
		slog.InfoContext(ctx, "sealed again with the first key", "records", again, "left", failed)
	}
	if failed > 0 {
		// Once for all of them: one is enough to see why, and there may be hundreds in each round.
		slog.WarnContext(ctx, "what an older key seals cannot be sealed again", "records", failed, "last", why)
	}
	if ended {
		sealedByOlderKeys.Set(float64(l.left))
		showSealed()
		*l = look{}
	}
}

func (s *Service) resealCertificate(ctx context.Context, host string) error {
	return s.opt.Store.ChangeCertificate(ctx, host, func(r *Record, _ Owner) error {
		if r.Certificate == nil {
			return nil
		}
		again, err := resealed(s.opt.Seal, host, r.Certificate.Key)
		if err != nil {
			return err
		}
		c := *r.Certificate
		c.Key = again
		r.Certificate = &c
		return nil
	})
}

func resealed(keys *seal.Keys, name string, sealed []byte) ([]byte, error) {
	if seal.IDOf(sealed) == keys.ID() {
		return nil, errCurrent
	}
	plain, err := keys.Open(name, sealed)
	if err != nil {
		return nil, err
	}
	return keys.Seal(name, plain), nil
}
