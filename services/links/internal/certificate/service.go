package certificate

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/cache"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/seal"
	"github.com/linkreel/linkreel/libs/turns"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
)

// Store keeps certificates.
type Store interface {
	// Certificate reads a host's record. found is false if the record does not exist.
	Certificate(ctx context.Context, host string) (r *Record, found bool, err error)
	// ChangeCertificate runs fn on a host's record and its owner, and stores the changes to both.
	// If the host has no record, fn gets the zero record. fn may run several times and must not
	// have any other side effects. If fn returns an error, nothing is stored. If the error is
	// ErrForget, the record is removed.
	ChangeCertificate(ctx context.Context, host string, fn func(r *Record, o *Owner) error) error
	// DueCertificates lists up to limit hosts with due records, earliest first. It includes hosts
	// with unreadable records.
	DueCertificates(ctx context.Context, at time.Time, limit int) ([]string, error)
	// PutOffCertificate changes a record's due time without reading the record.
	PutOffCertificate(ctx context.Context, host string, at time.Time) error
	// SealedBy lists, in order, hosts whose private keys are sealed with one of keyIDs. The list
	// starts after the host named by after, or with the first host if after is "". It includes
	// hosts with unreadable records.
	SealedBy(ctx context.Context, keyIDs []string, after string, limit int) (hosts []string, err error)
}

// Owner is the account that owns a host name, or zero if no account owns it.
type Owner struct {
	Account   string
	Suspended bool // the account is suspended or being erased
	// Shown is the certificate's state in the account's API record.
	Shown customdomain.Certificate
}

// errNoChallenge means that no order has an open challenge of this kind.
var errNoChallenge = errors.New("no challenge is open")

// ErrForget removes the record if the fn of ChangeCertificate returns it.
var ErrForget = errors.New("forget this certificate")

// Limiter limits the orders across all replicas; see [ratelimit.Limiter].
type Limiter interface {
	Take(ctx context.Context, rules ...ratelimit.Rule) (t ratelimit.Try, wait time.Duration)
	Refund(ctx context.Context, t ratelimit.Try)
}

// Options configure a [Service].
type Options struct {
	Store   Store
	Issuer  Issuer
	Account *Account
	Seal    *seal.Keys
	Limiter Limiter
	// Owner reports whether a domain owns a host name. It calls wait before it reads the store.
	// wait returns the context for the read, or an error to prevent it.
	Owner func(wait func(known bool) (context.Context, error), host string) (found bool, err error)
	// Own reports whether a host name belongs to this installation. Such names do not need an
	// owner.
	Own func(host string) bool
	// Misses is the budget for networks that request unknown names.
	Misses *ratelimit.Misses
	// PerHour limits the certificates that all replicas order in an hour; 0 means 100.
	PerHour int
	// Now is the clock; nil means the system clock.
	Now func() time.Time
}

// Service serves certificates and orders them.
type Service struct {
	opt       Options
	holder    string
	held      *cache.Cache[*held]
	strangers *rate.Limiter
	rotation  *seal.Rotation // used only by the sweep

	ordering *turns.Queue // by account

	mu      sync.Mutex
	orders  map[string]*flight
	waiting int

	life context.Context // orders continue after the handshakes that started them
	end  context.CancelFunc
	work sync.WaitGroup
}

// held is a cached certificate.
type held struct {
	cert     *tls.Certificate
	renewAt  time.Time
	notAfter time.Time
	looked   atomic.Int64 // when this replica last checked for a renewal by another replica, in ns
}

// flight is one of this replica's in-flight orders.
type flight struct {
	done    chan struct{}
	err     error
	waiting int // handshakes waiting for the order
}

const (
	// mostOrders limits the replica's concurrent orders. ordersOfAccount limits one account's
	// concurrent orders because orders for all of an account's names may hang. mostQueued and
	// queuedOfAccount limit the queued orders.
	mostOrders, ordersOfAccount = 64, 8
	mostQueued, queuedOfAccount = 256, 8
	// mostBegun limits the replica's total number of unfinished orders because the other limits
	// apply only once an order's account is known.
	mostBegun = 512
	// mostWaiting limits the handshakes waiting for an order, and waitingForHost those waiting for
	// one name. One account's handshakes therefore take at most a fifth of mostWaiting.
	mostWaiting, waitingForHost = 2000, 25
	// crowded is how long an order waits in the queue, and how long it is postponed after that.
	crowded = 10 * time.Second
	// strangersRate limits the reads for unknown names across all networks.
	strangersRate, strangersBurst = 50, 200
	// cacheBytes limits the cache to about 8,000 certificates.
	cacheBytes, certBytes = 64 << 20, 8 << 10
	// fresh is how long a replica serves a cached certificate before reading it again. If the
	// certificate is due for renewal, the replica reads it again sooner.
	fresh = 10 * time.Minute
	// patience is how long a handshake waits for an order.
	patience = 12 * time.Second
	// handoff is the pause between checks on another replica's order.
	handoff = 300 * time.Millisecond
	// loss is the age at which a private key that cannot be decrypted counts as lost. Until then,
	// this replica may simply not have received the right sealing key yet.
	loss = 24 * time.Hour
)

// NewService returns a service. Call Sweep regularly to renew certificates, and Close when done.
func NewService(opt Options) *Service {
	opt.PerHour = cmp.Or(opt.PerHour, 100)
	if opt.Now == nil {
		opt.Now = time.Now
	}
	s := &Service{
		opt: opt, holder: identity.NewNonce(), orders: map[string]*flight{}, rotation: newRotation(opt),
		strangers: rate.NewLimiter(strangersRate, strangersBurst),
		ordering: turns.NewQueue(turns.QueueOptions{Name: "certificate_orders",
			Parallel: mostOrders, Each: ordersOfAccount, Waiting: queuedOfAccount, AllWaiting: mostQueued}),
	}
	s.life, s.end = context.WithCancel(context.Background())
	// Absent is short because another replica may issue a missing certificate at any moment.
	s.held = cache.New(cache.Options[*held]{
		Load: s.load, Capacity: cacheBytes, Weigh: func(*held) int { return certBytes },
		Fresh: fresh, Absent: time.Second, Now: opt.Now,
	})
	return s
}

// Close stops this replica's orders and waits for them to end. Another replica's sweep resumes
// unfinished orders.
func (s *Service) Close(context.Context) error {
	s.end()
	s.work.Wait()
	return nil
}

// TLS returns the TLS listener's configuration.
func (s *Service) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// The server behind this listener supports only HTTP/1.1.
		NextProtos:     []string{"http/1.1", acmez.ACMETLS1Protocol},
		GetCertificate: s.GetCertificate,
	}
}

// GetCertificate answers the first message in a visitor's handshake.
func (s *Service) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	c, err := s.answer(hello)
	if err != nil {
		refused.WithLabelValues(reasonOf(err)).Inc()
		return nil, fmt.Errorf("%q: %w", hello.ServerName, err)
	}
	return c, nil
}

func (s *Service) answer(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	host, problem := customdomain.CheckHostname(hello.ServerName, nil)
	if problem != nil {
		return nil, ErrUnknownHost
	}
	ctx, cancel := context.WithTimeout(hello.Context(), patience)
	defer cancel()
	// Check the name for challenges too: the authority requests only known names, and other clients
	// must not cause reads for unknown names.
	if err := s.known(ctx, host, clientOf(hello.Conn)); err != nil {
		return nil, err
	}
	if len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == acmez.ACMETLS1Protocol {
		c, err := s.challenge(ctx, host, clientOf(hello.Conn), func(Challenge) bool { return true })
		if err != nil {
			return nil, err
		}
		return acmez.TLSALPN01ChallengeCert(acme.Challenge{Identifier: acme.Identifier{Type: "dns", Value: host}, KeyAuthorization: c.Answer})
	}
	return s.serve(ctx, host)
}

// known rejects names that do not belong to a verified domain. It reads the store only for names
// that are not cached, and only within two budgets: one per network, and one shared by all
// networks.
func (s *Service) known(ctx context.Context, host string, client netip.Addr) error {
	if s.opt.Own(host) {
		return nil
	}
	found, err := s.opt.Owner(func(known bool) (context.Context, error) {
		// Only names that are not cached count against the budgets.
		if !known && (s.opt.Misses.Wait(client) > 0 || !s.strangers.Allow()) {
			return nil, ErrBudget
		}
		return ctx, nil
	}, host)
	if err == nil && !found {
		s.opt.Misses.Miss(client)
		err = ErrUnknownHost
	}
	return err
}

// mayAsk reports whether a network may request a challenge. Each such request reads the store. A
// network that requests challenges that do not exist uses up its budget for misses. Until that
// budget has recovered, its requests also count against a budget shared by all such networks. The
// authority requests only existing challenges, so other clients cannot use up its budget. "No
// challenge" is not cached: a client could cause it to be cached just before the name's order
// starts, and make the order fail.
func (s *Service) mayAsk(client netip.Addr) bool {
	return s.opt.Misses.Wait(client) == 0 && (!s.opt.Misses.Missed(client) || s.strangers.Allow())
}

func clientOf(c net.Conn) netip.Addr {
	if c == nil {
		return netip.Addr{}
	}
	a, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr()
}

// serve returns a known host's certificate, and orders one if there is none.
func (s *Service) serve(ctx context.Context, host string) (*tls.Certificate, error) {
	now := s.opt.Now()
	l, err := s.held.Get(ctx, host)
	if err == nil && l.Found && now.After(l.Value.renewAt) && l.Value.mayLook(now) {
		// Another replica may have renewed the certificate.
		s.held.Invalidate(host)
		l, err = s.held.Get(ctx, host)
	}
	if err != nil {
		return nil, err
	}
	if l.Found && now.Before(l.Value.notAfter) {
		return l.Value.cert, nil
	}
	if err := s.wait(ctx, host); err != nil {
		return nil, err
	}
	// The cached state is older than the order and has no certificate.
	s.held.Invalidate(host)
	if l, err = s.held.Get(ctx, host); err != nil {
		return nil, err
	}
	if !l.Found {
		return nil, ErrBusy
	}
	return l.Value.cert, nil
}

// mayLook reports whether it is time to check for a renewal again. Short-lived certificates are
// checked more often.
func (h *held) mayLook(now time.Time) bool {
	pause := max(time.Second, min(time.Minute, h.notAfter.Sub(h.renewAt)/20))
	last := h.looked.Load()
	return now.UnixNano()-last >= int64(pause) && h.looked.CompareAndSwap(last, now.UnixNano())
}

// load reads a certificate into the cache.
func (s *Service) load(ctx context.Context, host string) (*held, bool, error) {
	r, found, err := s.opt.Store.Certificate(ctx, host)
	if err != nil || !found || r.Certificate == nil {
		return nil, false, err
	}
	c := r.Certificate
	plain, err := s.opt.Seal.Open(host, c.Key)
	if err != nil {
		if s.lost(c) {
			return nil, false, nil
		}
		// Log an error rather than a warning because visitors cannot reach this host over TLS until
		// the setting is corrected.
		slog.ErrorContext(ctx, "cannot decrypt a certificate's private key", "host", host, "error", err)
		return nil, false, err
	}
	cert, err := parse(host, c.Chain, plain)
	if err != nil {
		return nil, false, err
	}
	return &held{cert: cert, renewAt: c.RenewAt, notAfter: c.NotAfter}, true, nil
}

// lost reports whether a certificate must be ordered again because no sealing key decrypts its
// private key. It returns false for certificates that are younger than [loss], because some
// replicas do not have the new key yet during a rotation. If they replaced each other's
// certificates, they would use up the authority's limits.
func (s *Service) lost(c *Certificate) bool {
	return !s.opt.Seal.Has(c.Key) && s.opt.Now().Sub(c.NotBefore) > loss
}

// wait orders a certificate for host, or joins this replica's in-flight order. It waits until the
// order finishes or ctx is done.
func (s *Service) wait(ctx context.Context, host string) error {
	s.mu.Lock()
	f := s.orders[host]
	// Limit the waiting handshakes because each holds a connection and anybody can open one.
	if s.waiting >= mostWaiting || f != nil && f.waiting >= waitingForHost || f == nil && len(s.orders) >= mostBegun {
		s.mu.Unlock()
		return ErrLimited
	}
	if f == nil {
		f = s.begin(host)
	}
	s.waiting++
	f.waiting++
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.waiting--; f.waiting--; s.mu.Unlock() }()
	return f.wait(ctx)
}

func (f *flight) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ErrBusy
	}
}

// begin starts an order. s.mu is held.
func (s *Service) begin(host string) *flight {
	f := &flight{done: make(chan struct{})}
	if s.life.Err() != nil {
		f.err = ErrLimited
		close(f.done)
		return f
	}
	s.orders[host] = f
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, longestOrder)
		defer cancel()
		defer func() {
			// A panic in the ACME client must not stop this process, which also serves redirects.
			if p := recover(); p != nil {
				slog.Error("panic", "service", "links-certificates", "panic", p)
				f.err = ErrBusy
			}
			s.mu.Lock()
			delete(s.orders, host)
			s.mu.Unlock()
			close(f.done)
		}()
		f.err = s.order(ctx, host)
	})
	return f
}

// claimed is an order that this replica has claimed.
type claimed struct {
	host    string
	token   int64  // token of the lease; 0 if there already is a certificate
	account string // "" for one of the installation's own host names
	renewal bool   // the host had a certificate before this order
}

// order gets a certificate for host, or waits for another replica's order.
func (s *Service) order(ctx context.Context, host string) error {
	release := func() {}
	defer func() { release() }()
	for first := true; ; first = false {
		o, err := s.claim(ctx, host)
		busy := errors.Is(err, ErrBusy)
		if !busy && (err != nil || o.token == 0) {
			return err
		}
		// The account is known now, so wait in its queue. Waiting for another replica's order also
		// takes a slot because handshakes are waiting for that order.
		if first {
			end, err := s.turn(ctx, o.account)
			switch {
			case err != nil && busy:
				return ErrShare
			case err != nil:
				return s.postpone(ctx, o)
			}
			release = end
		}
		if !busy {
			return s.issue(ctx, o)
		}
		// Check again soon. By then there may be a certificate, or the other replica's lease may
		// have expired.
		select {
		case <-ctx.Done():
			return ErrBusy
		case <-time.After(handoff):
		}
	}
}

// turn waits until the account may order. It gives up before the lease expires.
func (s *Service) turn(ctx context.Context, account string) (end func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, crowded)
	defer cancel()
	return s.ordering.Enter(ctx, account)
}

// claim claims the order, if a certificate is needed.
func (s *Service) claim(ctx context.Context, host string) (o claimed, err error) {
	own := s.opt.Own(host)
	var refusal error // returned even though the record's change is stored
	err = s.record(ctx, host, func(r *Record, owner *Owner) error {
		o, refusal = claimed{}, nil
		if owner.Account == "" && !own {
			refusal = ErrUnknownHost
			return s.leave(r)
		}
		renewal := r.Certificate != nil
		if renewal && s.lost(r.Certificate) {
			r.Certificate = nil
		}
		// Renewals continue because visitors to a suspended account's links must see the suspension
		// page rather than a TLS error.
		if owner.Suspended && !renewal && !r.leased(s.opt.Now()) {
			if r.DueAt.IsZero() {
				return ErrSuspended
			}
			// A dead replica has left this order open. Do not resume it.
			refusal = ErrSuspended
			r.Release(r.NextAt)
			return nil
		}
		o.account = owner.Account
		taken, err := r.Claim(s.holder, s.opt.Now())
		if taken {
			r.Account = owner.Account
			o = claimed{host, r.Token, owner.Account, renewal}
		}
		return err
	})
	if errors.Is(err, ErrForget) || err == nil {
		err = refusal
	}
	return o, err
}

// record changes a host's record, and updates the certificate's state in the owner's API record.
func (s *Service) record(ctx context.Context, host string, fn func(r *Record, o *Owner) error) error {
	return s.opt.Store.ChangeCertificate(ctx, host, func(r *Record, o *Owner) error {
		err := fn(r, o)
		o.Shown = Shown(r, s.opt.Now())
		return err
	})
}

// leave handles the record for a host that has lost its domain. It keeps only the fields that
// [Record.HandOver] keeps, and returns ErrForget if nothing is left.
func (s *Service) leave(r *Record) error {
	if r.HandOver("", s.opt.Now()) {
		return nil
	}
	return ErrForget
}

// fifth returns a fifth of the hour's budget for orders. One account may use at most a fifth for
// new certificates and a fifth for renewals. Across all accounts, a fifth is reserved for new
// certificates and a fifth for renewals.
func (s *Service) fifth() int { return max(1, s.opt.PerHour/5) }

// spend takes an order from the hour's budgets. The per-account limit prevents one account from
// blocking the others' orders; see [Service.fifth]. The error is ErrShare if the account has used
// up its share, and ErrLimited if all accounts together have used up the budget.
func (s *Service) spend(ctx context.Context, o claimed) (refund func(), wait time.Duration, err error) {
	var tries []ratelimit.Try
	refund = func() {
		for _, t := range tries {
			s.opt.Limiter.Refund(context.WithoutCancel(ctx), t)
		}
	}
	take := func(rules ...ratelimit.Rule) bool {
		var t ratelimit.Try
		if t, wait = s.opt.Limiter.Take(ctx, rules...); wait == 0 {
			tries = append(tries, t)
		}
		return wait == 0
	}
	const all = "acme-orders"
	everybody := []ratelimit.Rule{{Key: all, Max: s.opt.PerHour, Window: time.Hour}}
	if o.account != "" {
		kind := all + ":new"
		if o.renewal {
			kind = all + ":renewal"
		}
		// Check the account's share in a separate call, to find out which budget is used up. If it
		// is the whole budget, the sweep ends its round. If it is only one account's share, the
		// sweep continues.
		if !take(ratelimit.Rule{Key: kind + ":" + o.account, Max: s.fifth(), Window: time.Hour}) {
			return refund, wait, ErrShare
		}
		everybody = append(everybody, ratelimit.Rule{Key: kind, Max: max(1, s.opt.PerHour-s.fifth()), Window: time.Hour})
	}
	if !take(everybody...) {
		refund()
		return refund, wait, ErrLimited
	}
	return refund, 0, nil
}

// putOff postpones an order if there is no budget left for it.
func (s *Service) putOff(ctx context.Context, o claimed, wait time.Duration, why error) error {
	soon, later := min(wait, 5*time.Minute), time.Duration(0) // the operator may raise the limit
	if errors.Is(why, ErrShare) {
		orders.WithLabelValues("share").Inc()
		slog.InfoContext(ctx, "an account has used its share of LINKREEL_ACME_ORDERS_PER_HOUR; postponing the order",
			"host", o.host, "account", o.account, "renewal", o.renewal, "next", wait.String())
		if o.renewal {
			// Postpone a renewal for longer. Otherwise it would come before other accounts' orders
			// in every round. It can wait while the current certificate is valid.
			later = wait
		}
	} else {
		orders.WithLabelValues("limited").Inc()
		slog.WarnContext(ctx, "all orders allowed by LINKREEL_ACME_ORDERS_PER_HOUR are used up; postponing this order",
			"host", o.host, "renewal", o.renewal, "next", wait.String())
	}
	now := s.opt.Now()
	return errors.Join(why, s.note(ctx, o, func(r *Record) {
		if later > 0 && r.Valid(now) {
			soon = later
		}
		r.Release(now.Add(soon))
	}))
}

// postpone postpones an order whose account already has the maximum number of orders in flight.
func (s *Service) postpone(ctx context.Context, o claimed) error {
	orders.WithLabelValues("share").Inc()
	return errors.Join(ErrShare, s.note(ctx, o, func(r *Record) { r.Release(s.opt.Now().Add(crowded)) }))
}

// issue orders a certificate, as the holder of the lease, and records the outcome.
func (s *Service) issue(ctx context.Context, o claimed) error {
	// Spend the budgets after the claim, so that replicas waiting for the same order spend nothing.
	refund, wait, err := s.spend(ctx, o)
	if err != nil {
		return s.putOff(ctx, o, wait, err)
	}
	cert, err := s.ask(ctx, o)
	if err == nil {
		if err = s.note(ctx, o, func(r *Record) { r.Issued(cert) }); err == nil {
			orders.WithLabelValues("issued").Inc()
			slog.InfoContext(ctx, "certificate issued", "host", o.host, "until", cert.NotAfter)
			s.held.Invalidate(o.host)
		}
		return err
	}
	if s.life.Err() != nil {
		// This replica is stopping. The name is not at fault, and another replica will resume the
		// order.
		return errors.Join(err, s.note(ctx, o, func(r *Record) { r.Until = s.opt.Now(); r.DueAt = r.Until }))
	}
	orders.WithLabelValues("failed").Inc()
	f := failureOf(o.host, err)
	if f.Away && errors.Is(err, ErrNoOrder) {
		// Refund the order. Otherwise an outage at the authority would use up the budget, and no
		// account could order for an hour after the outage.
		refund()
	}
	slog.WarnContext(ctx, "cannot get a certificate", "host", o.host, "reason", f.Words, "error", err)
	var next time.Time
	if noted := s.note(ctx, o, func(r *Record) { r.Failed(f, s.opt.Now()); next = r.NextAt }); noted != nil {
		return noted
	}
	return &RefusedError{Reason: f.Words, Next: next}
}

// ask gets a certificate from the authority, and extends the lease during the call.
func (s *Service) ask(ctx context.Context, o claimed) (*Certificate, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	kept := make(chan struct{})
	go func() { defer close(kept); s.keep(ctx, cancel, o) }()
	// Wait for keep to end, so that it does not extend the lease while the outcome is being stored.
	defer func() { cancel(nil); <-kept }()

	key, csr, err := newKey(o.host)
	if err != nil {
		return nil, err
	}
	begun := false
	chain, err := s.opt.Issuer.Issue(ctx, csr, func(ctx context.Context, c acme.Challenge) error {
		begun = true
		return s.change(ctx, o, func(r *Record) { r.Challenge = &Challenge{c.Token, c.KeyAuthorization} })
	})
	if err != nil {
		if !begun {
			err = fmt.Errorf("%w: %w", ErrNoOrder, err)
		}
		if cause := context.Cause(ctx); errors.Is(cause, ErrOvertaken) {
			err = cause
		}
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	c, err := parse(o.host, chain, pkcs8)
	if err != nil {
		return nil, err
	}
	from, to := lifeOf(c.Leaf, s.opt.Now())
	return &Certificate{
		Chain: chain, Key: s.opt.Seal.Seal(o.host, pkcs8), NotBefore: c.Leaf.NotBefore, NotAfter: to, RenewAt: RenewAt(o.host, from, to),
	}, nil
}

// keep extends the lease until ctx is done.
func (s *Service) keep(ctx context.Context, lose context.CancelCauseFunc, o claimed) {
	tick := time.NewTicker(Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := s.change(ctx, o, func(r *Record) { r.Extend(s.opt.Now()) })
		if errors.Is(err, ErrOvertaken) {
			// After any other error, retry at the next tick, which comes before the lease expires.
			lose(ErrOvertaken)
			return
		}
	}
}

// change changes an order's record. It returns ErrOvertaken if the order's lease is no longer
// the newest.
func (s *Service) change(ctx context.Context, o claimed, fn func(r *Record)) error {
	return s.record(ctx, o.host, func(r *Record, _ *Owner) error {
		if !r.Held(o.token) {
			return ErrOvertaken
		}
		fn(r)
		return nil
	})
}

// note stores an outcome, if the order's lease is still the newest. It does so even if the order
// has timed out or the domain has been deleted, because the failure still counts.
func (s *Service) note(ctx context.Context, o claimed, change func(r *Record)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	own, gone := s.opt.Own(o.host), false
	err := s.record(ctx, o.host, func(r *Record, owner *Owner) error {
		if !r.Held(o.token) {
			return ErrOvertaken
		}
		change(r)
		if gone = owner.Account == "" && !own; gone {
			return s.leave(r)
		}
		return nil
	})
	if gone && (err == nil || errors.Is(err, ErrForget)) {
		return ErrUnknownHost
	}
	return err
}

const (
	duePage = 800
	// atATime is the number of renewals that a replica runs concurrently. A name that hangs blocks
	// only one of them.
	atATime = 4
	// asideFor is how long a record is postponed if it cannot be read or changed.
	asideFor = time.Hour
)

// Sweep renews certificates and resumes orders from dead replicas. Several replicas may sweep
// concurrently because only one of them can claim the lease on an order.
func (s *Service) Sweep(ctx context.Context) error {
	var work errgroup.Group
	work.SetLimit(atATime)
	var limited atomic.Bool
	hosts, unlisted := s.opt.Store.DueCertificates(ctx, s.opt.Now(), duePage)
	for _, host := range hosts {
		if limited.Load() || ctx.Err() != nil {
			break
		}
		work.Go(func() error {
			if s.sweepOne(ctx, host) {
				limited.Store(true) // the whole budget is used up, so a later round handles the rest
			}
			return nil
		})
	}
	_ = work.Wait()
	return errors.Join(unlisted, s.rotation.Round(ctx))
}

// sweepOne renews a certificate that is due. If the record itself makes the renewal impossible,
// sweepOne postpones the record, so that it does not block later records. limited is true if the
// whole budget for orders is used up.
func (s *Service) sweepOne(ctx context.Context, host string) (limited bool) {
	err := s.renew(ctx, host)
	if err == nil || ctx.Err() != nil {
		return false
	}
	if errors.Is(err, ErrLimited) {
		return true
	}
	if reasonOf(err) != unknownReason || apierr.CodeOf(err) != apierr.Internal {
		return false // either the record contains the next due time, or Firestore is not responding
	}
	setAside.Inc()
	slog.ErrorContext(ctx, "cannot change a due certificate's record; postponing it by an hour", "host", host, "error", err)
	if err := s.opt.Store.PutOffCertificate(ctx, host, s.opt.Now().Add(asideFor)); err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "cannot postpone a certificate's record; the next sweep retries", "host", host, "error", err)
	}
	return false
}

// renew orders a certificate for host in the same way as a visitor's handshake, and waits for it.
// The limit on waiting handshakes does not apply, because visitors may have exhausted it.
func (s *Service) renew(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, longestOrder)
	defer cancel()
	s.mu.Lock()
	f := s.orders[host]
	if f == nil {
		f = s.begin(host)
	}
	s.mu.Unlock()
	return f.wait(ctx)
}

// Answer returns the response to the authority's HTTP challenge for a known host. ok is false if
// the challenge does not exist.
func (s *Service) Answer(ctx context.Context, host, token string, client netip.Addr) (answer string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	name, problem := customdomain.CheckHostname(host, nil)
	if problem != nil || s.known(ctx, name, client) != nil {
		return "", false
	}
	c, err := s.challenge(ctx, name, client, func(c Challenge) bool { return c.Token == token })
	return c.Answer, err == nil
}

// challenge reads a known host's open challenge, no matter which replica runs the order.
func (s *Service) challenge(ctx context.Context, host string, client netip.Addr, want func(Challenge) bool) (Challenge, error) {
	if !s.mayAsk(client) {
		return Challenge{}, ErrBudget
	}
	r, found, err := s.opt.Store.Certificate(ctx, host)
	if err == nil && found && r.Challenge != nil && want(*r.Challenge) {
		return *r.Challenge, nil
	}
	s.opt.Misses.Miss(client)
	return Challenge{}, cmp.Or(err, errNoChallenge)
}

// Shown returns a certificate's state for the domain's owner.
func Shown(r *Record, now time.Time) customdomain.Certificate {
	out := customdomain.Certificate{Error: r.Failure}
	if r.Certificate != nil {
		out.ExpiresAt = r.Certificate.NotAfter
	}
	switch {
	// Check this first: the state of a valid certificate is "issued" even during a renewal and
	// after a failed renewal.
	case r.Valid(now):
		out.Status = customdomain.CertificateIssued
	case r.Holder != "":
		out.Status = customdomain.CertificatePending
	case r.Failure != "":
		out.Status = customdomain.CertificateFailed
	}
	return out
}
