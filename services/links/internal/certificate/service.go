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
	// Certificate reads a host's record; found is false if there is none.
	Certificate(ctx context.Context, host string) (r *Record, found bool, err error)
	// ChangeCertificate runs fn on a host's record and its owner, and stores what fn changes in
	// both. The record may be the zero one. fn may run several times, so it must have no other
	// effect. If fn returns an error, nothing is stored. If the error is ErrForget, the record
	// is removed.
	ChangeCertificate(ctx context.Context, host string, fn func(r *Record, o *Owner) error) error
	// DueCertificates lists up to limit hosts with due records, the earliest first. It includes
	// hosts with unreadable records.
	DueCertificates(ctx context.Context, at time.Time, limit int) ([]string, error)
	// PutOffCertificate makes a record due at another time, without reading it.
	PutOffCertificate(ctx context.Context, host string, at time.Time) error
	// SealedBy lists, in order, hosts that have a private key sealed with one of keyIDs. The
	// list starts after the host that after names, or with the first host if after is "". It
	// includes hosts with unreadable records.
	SealedBy(ctx context.Context, keyIDs []string, after string, limit int) (hosts []string, err error)
}

// Owner is the account that owns a host name. It is zero if no account owns the name.
type Owner struct {
	Account   string
	Suspended bool // the account is suspended or being erased
	// Shown is the certificate as the account sees it.
	Shown customdomain.Certificate
}

// errNoChallenge means that no order has such a challenge open.
var errNoChallenge = errors.New("no challenge is waiting")

// ErrForget removes the record if the fn of ChangeCertificate returns it.
var ErrForget = errors.New("forget this certificate")

// Limiter bounds orders in all replicas together; see [ratelimit.Limiter].
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
	// wait returns the context for that read, or an error to refuse the read.
	Owner func(wait func(known bool) (context.Context, error), host string) (found bool, err error)
	// Own reports whether a host name is this installation's own. Such names need no owner.
	Own func(host string) bool
	// Misses is the budget of networks that ask for unknown names.
	Misses *ratelimit.Misses
	// PerHour bounds how many certificates all replicas order in an hour; 0 means 100.
	PerHour int
	// Now is the clock; nil means the system's clock.
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

	life context.Context // orders outlive the handshakes that started them
	end  context.CancelFunc
	work sync.WaitGroup
}

// held is a certificate in memory.
type held struct {
	cert     *tls.Certificate
	renewAt  time.Time
	notAfter time.Time
	looked   atomic.Int64 // when this replica last checked whether another one has renewed it, ns
}

// flight is an order of this replica.
type flight struct {
	done    chan struct{}
	err     error
	waiting int // handshakes that wait for the order
}

const (
	// mostOrders bounds the orders that the replica makes at once. ordersOfAccount bounds those
	// of one account, since all names of an account may make the authority hang. mostQueued and
	// queuedOfAccount bound the orders that wait for their turn.
	mostOrders, ordersOfAccount = 64, 8
	mostQueued, queuedOfAccount = 256, 8
	// mostBegun bounds all orders together: until an order's account is known, the other bounds
	// do not apply to it.
	mostBegun = 512
	// mostWaiting bounds the handshakes that wait for an order, and waitingForHost bounds those
	// for one name. So the handshakes of one account take at most a fifth of mostWaiting.
	mostWaiting, waitingForHost = 2000, 25
	// crowded is how long an order waits for its turn, and how long it is put off after that.
	crowded = 10 * time.Second
	// strangersRate bounds the reads for unknown names, over all networks together.
	strangersRate, strangersBurst = 50, 200
	// cacheBytes bounds the certificates in memory, to about 8,000.
	cacheBytes, certBytes = 64 << 20, 8 << 10
	// fresh is how long a replica serves a certificate from memory without reading it again.
	// If the certificate is due for renewal, the replica reads it again sooner.
	fresh = 10 * time.Minute
	// patience is how long a handshake waits for an order.
	patience = 12 * time.Second
	// handoff is the pause between two checks of another replica's order.
	handoff = 300 * time.Millisecond
	// loss is the age at which a private key that cannot be decrypted counts as lost. Before
	// that, the new setting that decrypts it may not have reached this replica yet.
	loss = 24 * time.Hour
)

// NewService returns a service. Call Sweep regularly, because it renews certificates, and Close
// at the end.
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
	s.held = cache.New(cache.Options[*held]{
		Load: s.load, Capacity: cacheBytes, Weigh: func(*held) int { return certBytes },
		Fresh: fresh, Absent: time.Second, Now: opt.Now,
	})
	return s
}

// Close stops the orders that this replica has started, and waits for them to end. Another
// replica's sweep resumes the unfinished orders.
func (s *Service) Close(context.Context) error {
	s.end()
	s.work.Wait()
	return nil
}

// TLS returns the configuration of the listener.
func (s *Service) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// The server that reads the connections speaks HTTP/1.1 only.
		NextProtos:     []string{"http/1.1", acmez.ACMETLS1Protocol},
		GetCertificate: s.GetCertificate,
	}
}

// GetCertificate answers the first message of a visitor's handshake.
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
	// Check the name for challenges too: the authority asks only for known names, and strangers
	// must not cause reads for other names.
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

// known refuses names that no verified domain has. It reads the store only for names that
// are not in memory, and only within two budgets: one for each network, and one for all
// networks together.
func (s *Service) known(ctx context.Context, host string, client netip.Addr) error {
	if s.opt.Own(host) {
		return nil
	}
	found, err := s.opt.Owner(func(known bool) (context.Context, error) {
		// Only a name that is not in memory counts against the budgets.
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

// mayAsk reports whether a network may ask for a challenge. Each such request reads the
// store. A network that asks for challenges that do not exist uses up its budget of misses.
// Until that budget has recovered, its requests also count against the budget that all
// strangers share. The authority asks only for challenges that exist, so nobody can use up
// the authority's budget. "No challenge" is not cached: a stranger could put it into the
// cache just before the name's order starts, and make the order fail.
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

// serve finds the certificate of a known host, and orders it if there is none.
func (s *Service) serve(ctx context.Context, host string) (*tls.Certificate, error) {
	now := s.opt.Now()
	l, err := s.held.Get(ctx, host)
	if err == nil && l.Found && now.After(l.Value.renewAt) && l.Value.mayLook(now) {
		// Another replica may have renewed it.
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
	// The cache still has the state from before the order, without a certificate.
	s.held.Invalidate(host)
	if l, err = s.held.Get(ctx, host); err != nil {
		return nil, err
	}
	if !l.Found {
		return nil, ErrBusy
	}
	return l.Value.cert, nil
}

// mayLook returns true from time to time, and more often for certificates with a short life.
func (h *held) mayLook(now time.Time) bool {
	pause := max(time.Second, min(time.Minute, h.notAfter.Sub(h.renewAt)/20))
	last := h.looked.Load()
	return now.UnixNano()-last >= int64(pause) && h.looked.CompareAndSwap(last, now.UnixNano())
}

// load reads a certificate into memory.
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
		// Log an error, not a warning: visitors of this host get no TLS until the setting is right.
		slog.ErrorContext(ctx, "cannot decrypt the private key of a certificate", "host", host, "error", err)
		return nil, false, err
	}
	cert, err := parse(host, c.Chain, plain)
	if err != nil {
		return nil, false, err
	}
	return &held{cert: cert, renewAt: c.RenewAt, notAfter: c.NotAfter}, true, nil
}

// lost reports whether a certificate has to be ordered again because no key of ours decrypts
// its private key. It returns false for certificates that are younger than [loss]. During a
// rotation some replicas do not have the new key yet, and the replicas would use up the
// authority's limits by replacing each other's certificates.
func (s *Service) lost(c *Certificate) bool {
	return !s.opt.Seal.Has(c.Key) && s.opt.Now().Sub(c.NotBefore) > loss
}

// wait orders a certificate for host, or joins this replica's running order. It waits until
// the order ends or ctx does.
func (s *Service) wait(ctx context.Context, host string) error {
	s.mu.Lock()
	f := s.orders[host]
	// Bound the waiting: each waiting handshake holds a connection, and anybody can open one.
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
			// A panic in the ACME client must not stop the redirects, which run in the same process.
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
	token   int64  // the token of the lease; 0 if there is a certificate already
	account string // "" for a host name of the installation
	renewal bool   // the host has had a certificate before
}

// order gets a certificate for host, or waits for the replica that does.
func (s *Service) order(ctx context.Context, host string) error {
	release := func() {}
	defer func() { release() }()
	for first := true; ; first = false {
		o, err := s.claim(ctx, host)
		busy := errors.Is(err, ErrBusy)
		if !busy && (err != nil || o.token == 0) {
			return err
		}
		// The account is known now, so wait for its turn. Waiting for another replica's order takes
		// a turn too, because handshakes wait here meanwhile.
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
		// Check again soon: by then there may be a certificate, or the other replica may have died
		// and its lease ended.
		select {
		case <-ctx.Done():
			return ErrBusy
		case <-time.After(handoff):
		}
	}
}

// turn waits for the account's turn to order, for less time than the lease lasts.
func (s *Service) turn(ctx context.Context, account string) (end func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, crowded)
	defer cancel()
	return s.ordering.Enter(ctx, account)
}

// claim takes the order, if one is needed.
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
		// Renewals continue, so that visitors of a suspended account see its page and not a TLS error.
		if owner.Suspended && !renewal && !r.leased(s.opt.Now()) {
			if r.DueAt.IsZero() {
				return ErrSuspended
			}
			// A dead replica has left its order open. Do not resume it.
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

// record changes a host's record, and updates what the owner sees of the certificate.
func (s *Service) record(ctx context.Context, host string, fn func(r *Record, o *Owner) error) error {
	return s.opt.Store.ChangeCertificate(ctx, host, func(r *Record, o *Owner) error {
		err := fn(r, o)
		o.Shown = Shown(r, s.opt.Now())
		return err
	})
}

// leave handles the record of a host that has lost its domain. It keeps only what [Record.HandOver]
// keeps, and returns ErrForget if nothing is left.
func (s *Service) leave(r *Record) error {
	if r.HandOver("", s.opt.Now()) {
		return nil
	}
	return ErrForget
}

// fifth returns a fifth of the hour's budget of orders. One account may use at most a fifth
// for new certificates and a fifth for renewals. A fifth is reserved for new certificates and
// a fifth for renewals.
func (s *Service) fifth() int { return max(1, s.opt.PerHour/5) }

// spend takes an order from the hour's budgets. One account may use a fifth for new
// certificates and a fifth for renewals, so that it cannot stop the others' orders.
// The error is ErrShare if the account has spent its share, and ErrLimited if all accounts
// together have spent the budget.
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
		// Check the account's share in a separate call, to know which budget is spent. The sweep ends
		// its round if the whole budget is spent, but continues if only one account's share is.
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

// putOff ends an order for which there is no budget.
func (s *Service) putOff(ctx context.Context, o claimed, wait time.Duration, why error) error {
	soon, later := min(wait, 5*time.Minute), time.Duration(0) // the limit may be raised
	if errors.Is(why, ErrShare) {
		orders.WithLabelValues("share").Inc()
		slog.InfoContext(ctx, "an account has used its share of LINKREEL_ACME_ORDERS_PER_HOUR; its order is put off",
			"host", o.host, "account", o.account, "renewal", o.renewal, "next", wait.String())
		if o.renewal {
			// Put a renewal off for longer: otherwise it would come before other accounts' orders in
			// every round. It can wait while the present certificate is valid.
			later = wait
		}
	} else {
		orders.WithLabelValues("limited").Inc()
		slog.WarnContext(ctx, "the orders that LINKREEL_ACME_ORDERS_PER_HOUR allows are used up; this order is put off",
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

// postpone puts off an order, because its account already has its maximum of orders in flight.
func (s *Service) postpone(ctx context.Context, o claimed) error {
	orders.WithLabelValues("share").Inc()
	return errors.Join(ErrShare, s.note(ctx, o, func(r *Record) { r.Release(s.opt.Now().Add(crowded)) }))
}

// issue orders a certificate as the holder of the lease and records the outcome.
func (s *Service) issue(ctx context.Context, o claimed) error {
	// Take from the budgets after the claim, so that replicas that wait for the same order take
	// nothing.
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
		// This replica is stopping. The name is not at fault, and another replica continues.
		return errors.Join(err, s.note(ctx, o, func(r *Record) { r.Until = s.opt.Now(); r.DueAt = r.Until }))
	}
	orders.WithLabelValues("failed").Inc()
	f := failureOf(o.host, err)
	if f.Away && errors.Is(err, ErrNoOrder) {
		// Refund, because otherwise an outage of the authority would use up the budget, and nobody
		// could order for an hour after it.
		refund()
	}
	slog.WarnContext(ctx, "certificate is not issued", "host", o.host, "error", err)
	var next time.Time
	if noted := s.note(ctx, o, func(r *Record) { r.Failed(f, s.opt.Now()); next = r.NextAt }); noted != nil {
		return noted
	}
	return &RefusedError{Reason: f.Words, Next: next}
}

// ask gets a certificate from the authority. It extends the lease meanwhile.
func (s *Service) ask(ctx context.Context, o claimed) (*Certificate, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	kept := make(chan struct{})
	go func() { defer close(kept); s.keep(ctx, cancel, o) }()
	// Wait for keep to end, so that it does not extend the lease while the outcome is stored.
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

// keep extends the lease until ctx ends.
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
			// After any other error, try again at the next tick, which comes before the lease ends.
			lose(ErrOvertaken)
			return
		}
	}
}

// change changes the record of an order. It returns ErrOvertaken if the order's lease is not
// the newest one.
func (s *Service) change(ctx context.Context, o claimed, fn func(r *Record)) error {
	return s.record(ctx, o.host, func(r *Record, _ *Owner) error {
		if !r.Held(o.token) {
			return ErrOvertaken
		}
		fn(r)
		return nil
	})
}

// note stores an outcome, if the order's lease is still the newest one. It does so even if
// the order has timed out or the domain was deleted meanwhile, because a failure still counts
// then.
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
	// atATime is how many renewals a replica works on at once. A name that hangs blocks only one
	// of them.
	atATime = 4
	// asideFor is how long a record is put off if it cannot be read or changed.
	asideFor = time.Hour
)

// Sweep renews certificates, and resumes orders of dead replicas. Several replicas may
// sweep at once: the lease decides which of them gets the order.
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
				limited.Store(true) // the whole budget is spent, so the rest waits for a later round
			}
			return nil
		})
	}
	_ = work.Wait()
	return errors.Join(unlisted, s.rotation.Round(ctx))
}

// sweepOne renews a certificate that is due. If the record itself makes that impossible,
// sweepOne puts it off, so that it does not block the records after it. limited is true if
// the whole budget of orders is spent.
func (s *Service) sweepOne(ctx context.Context, host string) (limited bool) {
	err := s.renew(ctx, host)
	if err == nil || ctx.Err() != nil {
		return false
	}
	if errors.Is(err, ErrLimited) {
		return true
	}
	if reasonOf(err) != unknownReason || apierr.CodeOf(err) != apierr.Internal {
		return false // its record says when it is due again, or Firestore does not answer
	}
	setAside.Inc()
	slog.ErrorContext(ctx, "cannot change a due certificate's record; putting it off for an hour", "host", host, "error", err)
	if err := s.opt.Store.PutOffCertificate(ctx, host, s.opt.Now().Add(asideFor)); err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "cannot put off a certificate's record; the next sweep retries", "host", host, "error", err)
	}
	return false
}

// renew orders a certificate for host like a visitor's handshake does, and waits for it. The bound
// on waiting handshakes does not apply to it, because visitors may have used up that bound.
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

// Answer returns the response to the authority's HTTP challenge for a known host. ok is false
// if there is no such challenge.
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

// challenge reads the challenge that waits for a response from a known host, whichever replica
// runs the order.
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

// Shown returns the certificate of a record as the domain's owner sees it.
func Shown(r *Record, now time.Time) customdomain.Certificate {
	out := customdomain.Certificate{Error: r.Failure}
	if r.Certificate != nil {
		out.ExpiresAt = r.Certificate.NotAfter
	}
	switch {
	// Check this first: a valid certificate stays "issued" during a renewal, and after a failed
	// one.
	case r.Valid(now):
		out.Status = customdomain.CertificateIssued
	case r.Holder != "":
		out.Status = customdomain.CertificatePending
	case r.Failure != "":
		out.Status = customdomain.CertificateFailed
	}
	return out
}
