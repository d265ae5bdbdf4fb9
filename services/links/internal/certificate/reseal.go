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
	Help: "Certificates and files of the ACME client that an older key of LINKREEL_CERTIFICATE_KEY seals, at the last look. 0 on every replica: the older keys can be dropped."})

// showSealed makes the gauge visible. It has no value until everything was looked at.
var showSealed = sync.OnceFunc(func() { prometheus.MustRegister(sealedByOlderKeys) })

// look goes once through everything that older keys seal. It may take several rounds.
type look struct {
	kind  int    // 0 for certificates, 1 for files
	after string // the last record that was tried
	left  int    // how many could not be sealed again
}

// reseal seals again, with the first key, what an older key seals, some in each round,
// so that the older key can be dropped. A record that cannot be sealed again keeps no
// other from its turn. What no key opens any more is not looked at.
func (s *Service) reseal(ctx context.Context) {
	kinds := []struct {
		list  func(ctx context.Context, keyIDs []string, after string, limit int) ([]string, error)
		again func(ctx context.Context, id string) error
	}{{s.opt.Store.SealedBy, s.resealCertificate}, {s.opt.Files.files.FilesSealedBy, s.opt.Files.reseal}}
	older := s.opt.Seal.OlderIDs()
	l, tried, failed, again := &s.look, 0, 0, make([]int, len(kinds))
	var why error
	for len(older) > 0 && l.kind < len(kinds) && tried < mostResealed {
		page, err := kinds[l.kind].list(ctx, older, l.after, resealPage)
		if err != nil {
			if ctx.Err() == nil {
				slog.WarnContext(ctx, "what older keys seal cannot be listed", "error", err)
			}
			break
		}
		for _, id := range page {
			tried++
			err := kinds[l.kind].again(ctx, id)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				again[l.kind]++
			case !errors.Is(err, errCurrent):
				failed, why = failed+1, fmt.Errorf("%s: %w", id, err)
				l.left++
			}
			l.after = id
		}
		if len(page) == 0 {
			l.kind, l.after = l.kind+1, ""
		}
	}
	if again[0]+again[1]+failed > 0 {
		slog.InfoContext(ctx, "sealed again with the first key", "certificates", again[0], "files", again[1], "left", failed)
	}
	if failed > 0 {
		// Once for all of them: one is enough to see why, and there may be hundreds in each round.
		slog.WarnContext(ctx, "what an older key seals cannot be sealed again", "records", failed, "last", why)
	}
	if len(older) == 0 || l.kind == len(kinds) {
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

// reseal seals a file again.
func (s *Storage) reseal(ctx context.Context, id string) error {
	return s.files.ChangeFile(ctx, id, func(f *File) (err error) {
		f.Value, err = resealed(s.seal, f.Name, f.Value)
		return err
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
