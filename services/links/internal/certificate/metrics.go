package certificate

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/linkreel/linkreel/libs/metrics"
)

var (
	orders = metrics.NewCounter(prometheus.CounterOpts{
		Name: "linkreel_certificate_orders_total",
		Help: "Certificate orders, by outcome: issued, failed, limited (all accounts together have reached a limit) " +
			"or share (the account has reached its own limit).",
	}, []string{"outcome"}, metrics.Each("issued", "failed", "limited", "share")...)
	refused = metrics.NewCounter(prometheus.CounterOpts{
		Name: "linkreel_tls_handshakes_refused_total", Help: "TLS handshakes that got no certificate, by reason.",
	}, []string{"reason"}, metrics.Each(
		"unknown", "budget", "ordering", "limited", "share", "overtaken", "suspended", "failed", unknownReason)...)
	setAside = promauto.NewCounter(prometheus.CounterOpts{
		Name: "linkreel_certificates_set_aside_total",
		Help: "Due certificates that were postponed for an hour because their records could not be read or changed.",
	})
)

// unknownReason is the reason for an error without a specific reason.
const unknownReason = "error"

func reasonOf(err error) string {
	var r *RefusedError
	switch {
	case errors.Is(err, ErrUnknownHost):
		return "unknown"
	case errors.Is(err, ErrBudget):
		return "budget"
	case errors.Is(err, ErrBusy):
		return "ordering"
	case errors.Is(err, ErrLimited):
		return "limited"
	case errors.Is(err, ErrShare):
		return "share"
	case errors.Is(err, ErrOvertaken):
		return "overtaken"
	case errors.Is(err, ErrSuspended):
		return "suspended"
	case errors.As(err, &r):
		return "failed"
	}
	return unknownReason
}
