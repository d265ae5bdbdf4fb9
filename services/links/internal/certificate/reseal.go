package certificate

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/linkreel/linkreel/libs/seal"
)

// sealedByOlderKeys has no value until the first round has completed.
var sealedByOlderKeys = promauto.NewGaugeVec(prometheus.GaugeOpts{
	Name: "linkreel_certificates_sealed_by_older_keys",
	Help: "Certificates, including the account key at the authority, that were sealed with an older key of LINKREEL_CERTIFICATE_KEY at the last check. " +
		"If it is 0 on every replica, the older keys can be removed.",
}, nil)

// newRotation returns the rotation that reseals certificates, and then the key for the account with
// the authority.
func newRotation(opt Options) *seal.Rotation {
	account := opt.Account
	return &seal.Rotation{
		Keys: opt.Seal, What: "certificates",
		List: func(ctx context.Context, keyIDs []string, after string) ([]string, error) {
			if after == account.ID {
				return nil, nil // the account is last, so the round is complete
			}
			hosts, err := opt.Store.SealedBy(ctx, keyIDs, after, 100)
			if err == nil && len(hosts) == 0 {
				// List the account regardless of its sealing key. If the first key sealed it,
				// reseal has no effect.
				hosts = []string{account.ID}
			}
			return hosts, err
		},
		Reseal: func(ctx context.Context, id string) error {
			if id == account.ID {
				return account.reseal(ctx)
			}
			return resealCertificate(ctx, opt, id)
		},
		Left: func(n int) { sealedByOlderKeys.WithLabelValues().Set(float64(n)) },
	}
}

func resealCertificate(ctx context.Context, opt Options, host string) error {
	return opt.Store.ChangeCertificate(ctx, host, func(r *Record, _ *Owner) error {
		if r.Certificate == nil {
			return nil
		}
		c := *r.Certificate
		var err error
		c.Key, err = opt.Seal.Again(host, c.Key)
		r.Certificate = &c
		return err
	})
}
