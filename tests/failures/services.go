package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/linkreel/linkreel/libs/outage"
)

// serviceFailures are the failures in the "Services" section of docs/failures.md.
var serviceFailures = []failure{
	{
		name: "account-floods", what: "one account sends a hundred calls a second, and its plan allows one",
		breaks: func(ctx context.Context, s *stack) error { return s.flood(ctx) },
		mends:  func(*stack) error { return nil },
		broken: 5 * time.Minute,
	},
	{
		name: "links-hangs", what: "one of two links pods hangs",
		breaks: func(ctx context.Context, s *stack) error { return s.hang(ctx, "links-2") },
		mends:  func(s *stack) error { return s.processes["links-2"].signal(syscall.SIGCONT) },
		broken: 3 * time.Minute, failsRedirects: true,
	},
	{
		name: "links-killed", what: "one of two links pods is killed every 20 s",
		breaks:  func(ctx context.Context, s *stack) error { return s.killEvery(ctx, "links-1", 20*time.Second) },
		mends:   func(*stack) error { return nil },
		expects: map[string]time.Duration{"LinkreelPodRestarts": 105 * time.Second},
	},
	{
		name: "events-down", what: "events is down",
		breaks:     func(_ context.Context, s *stack) error { return s.processes["events"].kill() },
		mends:      func(s *stack) error { return s.processes["events"].start() },
		expects:    map[string]time.Duration{"LinkreelServiceGone": 210 * time.Second, "LinkreelPodDown": 330 * time.Second},
		afterwards: []string{"LinkreelWebhooksSlow"},
	},
	{
		name: "videos-down", what: "videos is down",
		breaks:        func(_ context.Context, s *stack) error { return s.processes["videos"].kill() },
		mends:         func(s *stack) error { return s.processes["videos"].start() },
		expects:       map[string]time.Duration{"LinkreelServiceGone": 210 * time.Second, "LinkreelPodDown": 330 * time.Second},
		failsPlayback: true,
	},
	{
		name: "auth-down", what: "auth is down",
		breaks: func(_ context.Context, s *stack) error { return s.processes["auth"].kill() },
		mends:  func(s *stack) error { return s.processes["auth"].start() },
		expects: map[string]time.Duration{
			"LinkreelAPIErrors": time.Minute, "LinkreelKeyChecksRefused": 90 * time.Second, "LinkreelPlaybackErrors": 90 * time.Second,
			"LinkreelUnreachable": 150 * time.Second, "LinkreelServiceGone": 210 * time.Second, "LinkreelPodDown": 330 * time.Second,
		},
		failsPlayback: true,
	},
	{
		name: "auth-down-redis-dead", what: "auth is down, and Redis is dead",
		breaks: func(_ context.Context, s *stack) error {
			if err := s.processes["auth"].kill(); err != nil {
				return err
			}
			return s.proxies["redis"].cut()
		},
		mends: func(s *stack) error {
			if err := s.proxies["redis"].heal(); err != nil {
				return err
			}
			return s.processes["auth"].start()
		},
		expects: map[string]time.Duration{
			"LinkreelAPIErrors": time.Minute, "LinkreelKeyChecksRefused": 90 * time.Second, "LinkreelPlaybackErrors": 90 * time.Second,
			"LinkreelUnreachable": 150 * time.Second, "LinkreelServiceGone": 210 * time.Second, "LinkreelRedisUnreachable": 210 * time.Second,
			"LinkreelClicksSpooling": 330 * time.Second, "LinkreelPodDown": 330 * time.Second,
		},
		failsPlayback: true,
	},
}

// videoFailures are the failures in the "Videos" section of docs/failures.md.
var videoFailures = []failure{
	{
		name: "storage-away", what: "storage refuses connections",
		breaks:        func(_ context.Context, s *stack) error { return s.storage((*proxy).cut) },
		mends:         func(s *stack) error { return s.storage((*proxy).heal) },
		expects:       map[string]time.Duration{"LinkreelDependencyAway storage": 165 * time.Second},
		failsPlayback: true,
	},
	{
		name: "storage-slow", what: "each response from storage takes 3 s longer",
		breaks: func(_ context.Context, s *stack) error {
			return s.storage(func(p *proxy) error { return p.slow(3 * time.Second) })
		},
		mends:   func(s *stack) error { return s.storage((*proxy).heal) },
		expects: map[string]time.Duration{"LinkreelAPISlow": 12 * time.Minute},
	},
	{
		name: "worker-gone", what: "no worker is running",
		breaks: func(_ context.Context, s *stack) error { return s.processes["worker"].kill() },
		mends:  func(s *stack) error { return s.processes["worker"].start() },
		expects: map[string]time.Duration{
			"LinkreelServiceGone": 210 * time.Second, "LinkreelPodDown": 330 * time.Second, "LinkreelVideosWaiting": 21 * time.Minute,
		},
		afterwards: []string{"LinkreelVideosSlow"},
	},
	{
		name: "worker-hangs", what: "the worker hangs",
		breaks: func(ctx context.Context, s *stack) error { return s.hang(ctx, "worker") },
		mends:  func(s *stack) error { return s.processes["worker"].signal(syscall.SIGCONT) },
		broken: 3 * time.Minute,
	},
	{
		name: "worker-killed", what: "the worker is killed every 20 s",
		breaks: func(ctx context.Context, s *stack) error { return s.killEvery(ctx, "worker", 20*time.Second) },
		mends:  func(s *stack) error { return s.processes["worker"].start() },
		expects: map[string]time.Duration{
			"LinkreelPodRestarts": 105 * time.Second, "LinkreelServiceGone": 11 * time.Minute, "LinkreelPodDown": 13 * time.Minute,
		},
	},
}

// webhookFailures are the failures in the "Webhooks and certificates" section of docs/failures.md.
var webhookFailures = []failure{
	{
		name: "webhook-key-wrong", what: "events has the wrong key for webhook secrets",
		breaks: func(_ context.Context, s *stack) error {
			return s.restartWith("events", "LINKREEL_WEBHOOK_SECRET_KEY", strings.Repeat("fedcba9876543210", 4))
		},
		mends:   func(s *stack) error { return s.restartWith("events", "LINKREEL_WEBHOOK_SECRET_KEY", secret) },
		expects: map[string]time.Duration{"LinkreelWebhooksUnsigned": 90 * time.Second},
	},
	{
		name: "receivers-time-out", what: "12 receivers time out, one works",
		breaks: func(ctx context.Context, s *stack) error { return s.addHangingReceivers(ctx, 12) },
		mends:  func(*stack) error { return nil },
		broken: 16 * time.Minute,
	},
	{
		name: "authority-away", what: "the certificate authority does not answer",
		breaks:  func(ctx context.Context, s *stack) error { return s.loseAuthority(ctx) },
		mends:   func(s *stack) error { return s.proxies["authority"].heal() },
		expects: map[string]time.Duration{"LinkreelCertificatesFailing": 1830 * time.Second},
	},
}

// flood makes an account on the Free plan send a hundred calls per second.
func (s *stack) flood(ctx context.Context) error {
	key, err := s.account(ctx, "free")
	if err != nil {
		return err
	}
	go s.every(ctx, 10*time.Millisecond, func(ctx context.Context, turn int) {
		begin := time.Now()
		status, err := call(ctx, http.MethodGet, "http://"+s.counts.addrs[s.pods(turn)[0]+".api"]+"/api/v1/links?limit=5", key, nil, nil)
		if ctx.Err() == nil {
			s.counts.add("call from the account that sends too many", status, err, time.Since(begin))
		}
	})
	return nil
}

// storage changes the proxies for both of storage's addresses: the one that the services call and
// the one for uploads and playback.
func (s *stack) storage(change func(*proxy) error) error {
	for _, name := range []string{"storage", "upload"} {
		if err := change(s.proxies[name]); err != nil {
			return err
		}
	}
	return nil
}

// restartWith kills a process and starts it with a different value for a setting.
func (s *stack) restartWith(name, setting, value string) error {
	p := s.processes[name]
	if err := p.kill(); err != nil {
		return err
	}
	p.env = slices.DeleteFunc(p.env, func(pair string) bool { return strings.HasPrefix(pair, setting+"=") })
	p.env = append(p.env, setting+"="+value)
	return p.start()
}

// grace is how long the chart gives a links pod to stop.
const grace = 33 * time.Second

// hang stops a process with SIGSTOP. It then does what Kubernetes does with the chart's probes
// until ctx is done: a links pod that fails two readiness probes gets no traffic, and a process
// that fails six liveness probes is killed after the grace period and restarted.
func (s *stack) hang(ctx context.Context, name string) error {
	p := s.processes[name]
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	go func() {
		for failed := 0; outage.Pause(ctx, 2*time.Second); {
			if answers(ctx, p.admin, "/readyz", 2*time.Second) {
				failed = 0
				s.unready.Delete(name)
			} else if failed++; failed == 2 {
				s.unready.Store(name, true)
				s.say("%s is not ready", name)
			}
		}
		s.unready.Delete(name)
	}()
	go func() {
		for failed := 0; outage.Pause(ctx, 10*time.Second); {
			if failed++; answers(ctx, p.admin, "/livez", 5*time.Second) {
				failed = 0
			}
			if failed < 6 {
				continue
			}
			failed = 0
			if !outage.Pause(ctx, grace) {
				return
			}
			if err := p.kill(); err != nil {
				s.say("cannot kill %s: %v", name, err)
			}
			if err := p.start(); err != nil {
				s.say("cannot start %s: %v", name, err)
			}
			s.say("%s was restarted", name)
		}
	}()
	return nil
}

// answers reports whether a probe of a process succeeds.
func answers(ctx context.Context, addr, path string, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	status, err := call(ctx, http.MethodGet, "http://"+addr+path, "", nil, nil)
	return err == nil && status == http.StatusOK
}

// addHangingReceivers creates accounts whose webhooks do not respond until ctx is done. Each
// account creates a link every six seconds. Each receiver has its own address.
func (s *stack) addHangingReceivers(ctx context.Context, n int) error {
	hangs := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the caller has gone
		select {
		case <-ctx.Done():
		case <-r.Context().Done():
		}
	})
	keys := make([]string, n)
	for i := range keys {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:0", 2+i))
		if err != nil {
			return err
		}
		receiver := httptest.NewUnstartedServer(hangs)
		_ = receiver.Listener.Close() // nothing has used this listener
		receiver.Listener = l
		receiver.Start()
		s.servers = append(s.servers, receiver)
		if keys[i], err = s.account(ctx, "creator"); err != nil {
			return err
		}
		if _, err := call(ctx, http.MethodPost, "http://"+s.counts.addrs["events.api"]+"/api/v1/webhooks", keys[i], map[string]any{
			"url": receiver.URL, "events": []string{"*"},
		}, &struct{}{}); err != nil {
			return err
		}
	}
	go s.every(ctx, 6*time.Second/time.Duration(n), func(ctx context.Context, turn int) {
		begin := time.Now()
		status, err := call(ctx, http.MethodPost, "http://"+s.counts.addrs["links-1.api"]+"/api/v1/links", keys[turn%n], map[string]any{"url": "https://example.com/"}, nil)
		if ctx.Err() == nil {
			s.counts.add("create with a hanging receiver", status, err, time.Since(begin))
		}
	})
	return nil
}

// newDomains is how many domains are added as soon as the authority is cut off. The alert needs more
// than five failed orders.
const newDomains = 8

// loseAuthority cuts off the certificate authority and adds domains. Then it adds one every five
// minutes because the pauses between orders for a name grow to up to 15 minutes.
func (s *stack) loseAuthority(ctx context.Context) error {
	if err := s.proxies["authority"].cut(); err != nil {
		return err
	}
	for i := range newDomains {
		if err := s.addDomain(ctx, fmt.Sprintf("new-%d.example.com", i)); err != nil {
			return err
		}
	}
	go func() {
		for i := newDomains; outage.Pause(ctx, 5*time.Minute); i++ {
			if err := s.addDomain(ctx, fmt.Sprintf("new-%d.example.com", i)); err != nil {
				s.say("cannot add a domain: %v", err)
			}
		}
	}()
	return nil
}
