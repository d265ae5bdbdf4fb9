package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
)

// redisFailures are the failures in the "Redis" section of docs/failures.md.
var redisFailures = []failure{
	{
		name: "redis-dead", what: "Redis is dead",
		breaks:  func(_ context.Context, s *stack) error { return s.proxies["redis"].cut() },
		mends:   func(s *stack) error { return s.proxies["redis"].heal() },
		expects: map[string]time.Duration{"LinkreelRedisUnreachable": 150 * time.Second, "LinkreelClicksSpooling": 330 * time.Second},
	},
	{
		name: "redis-memory-full", what: "Redis's memory is full",
		breaks:  func(ctx context.Context, s *stack) error { return s.limitRedis(ctx, "1mb") },
		mends:   func(s *stack) error { return s.limitRedis(context.Background(), "0") },
		expects: map[string]time.Duration{"LinkreelRedisUnreachable": 3 * time.Minute, "LinkreelClicksSpooling": 330 * time.Second},
	},
	{
		name: "redis-disk-full", what: "Redis's disk is full", disks: []string{"redis"},
		breaks: func(ctx context.Context, s *stack) error { return s.fill(ctx, "redis") },
		mends:  func(s *stack) error { return s.empty("redis") },
		expects: map[string]time.Duration{
			"LinkreelRedisUnreachable": 150 * time.Second, "LinkreelClicksSpooling": 330 * time.Second, "LinkreelVolumeFilling": 630 * time.Second,
		},
	},
	{
		name: "redis-slow", what: "each response from Redis takes 0.3 s longer",
		breaks:  func(_ context.Context, s *stack) error { return s.proxies["redis"].slow(300 * time.Millisecond) },
		mends:   func(s *stack) error { return s.proxies["redis"].heal() },
		expects: map[string]time.Duration{"LinkreelRedisUnreachable": 210 * time.Second, "LinkreelClicksSpooling": 330 * time.Second},
	},
	{
		name: "redis-late", what: "each response from Redis takes 25 ms longer",
		breaks:  func(_ context.Context, s *stack) error { return s.proxies["redis"].slow(25 * time.Millisecond) },
		mends:   func(s *stack) error { return s.proxies["redis"].heal() },
		expects: map[string]time.Duration{"LinkreelRedisSlow": 750 * time.Second},
	},
	{
		name: "redis-flapping", what: "Redis refuses connections for 20 s of every 40 s",
		breaks:  func(ctx context.Context, s *stack) error { return s.flap(ctx, "redis", 20*time.Second) },
		mends:   func(s *stack) error { return s.proxies["redis"].heal() },
		expects: map[string]time.Duration{"LinkreelRedisUnreachable": 210 * time.Second, "LinkreelClicksSpooling": 300 * time.Second},
	},
	{
		name: "redis-dead-firestore-slow", what: "Redis is dead, and each response from Firestore takes 0.8 s longer",
		breaks: func(_ context.Context, s *stack) error {
			if err := s.proxies["firestore"].slow(800 * time.Millisecond); err != nil {
				return err
			}
			return s.proxies["redis"].cut()
		},
		mends: func(s *stack) error {
			if err := s.proxies["firestore"].heal(); err != nil {
				return err
			}
			return s.proxies["redis"].heal()
		},
		expects: map[string]time.Duration{
			"LinkreelRedisUnreachable": 210 * time.Second, "LinkreelClicksSpooling": 330 * time.Second,
			"LinkreelAPISlow": 630 * time.Second, "LinkreelRedirectsSlow": 630 * time.Second, "LinkreelFirestoreSlow": 660 * time.Second,
		},
	},
	{
		name: "redis-dead-spools-full", what: "Redis is dead, and the disk of the spools is full", disks: []string{"spool-links-1", "spool-links-2"},
		breaks: func(ctx context.Context, s *stack) error {
			return errors.Join(s.fill(ctx, "spool-links-1"), s.fill(ctx, "spool-links-2"), s.proxies["redis"].cut())
		},
		mends: func(s *stack) error {
			return errors.Join(s.proxies["redis"].heal(), s.empty("spool-links-1"), s.empty("spool-links-2"))
		},
		expects:     map[string]time.Duration{"LinkreelClicksLost": 20 * time.Second, "LinkreelRedisUnreachable": 3 * time.Minute},
		losesClicks: true,
	},
}

// firestoreFailures are the failures in the "Firestore and localcloud" section of docs/failures.md.
var firestoreFailures = []failure{
	{
		name: "firestore-away", what: "Firestore does not answer",
		breaks: func(_ context.Context, s *stack) error { return s.proxies["firestore"].swallow() },
		mends:  func(s *stack) error { return s.proxies["firestore"].heal() },
		expects: map[string]time.Duration{
			"LinkreelAPIErrors": time.Minute, "LinkreelRedirectErrors": time.Minute, "LinkreelPlaybackErrors": time.Minute,
			"LinkreelDependencyAway": 90 * time.Second, "LinkreelKeyChecksRefused": 2 * time.Minute,
		},
		failsPlayback: true,
	},
	{
		name: "firestore-flapping", what: "Firestore refuses connections for 20 s of every 40 s",
		breaks: func(ctx context.Context, s *stack) error { return s.flap(ctx, "firestore", 20*time.Second) },
		mends:  func(s *stack) error { return s.proxies["firestore"].heal() },
		expects: map[string]time.Duration{
			"LinkreelAPIErrors": time.Minute, "LinkreelRedirectErrors": time.Minute, "LinkreelDependencyAway": 270 * time.Second,
		},
		failsPlayback: true,
	},
	{
		name: "firestore-slow", what: "each response from Firestore takes 0.8 s longer",
		breaks: func(_ context.Context, s *stack) error { return s.proxies["firestore"].slow(800 * time.Millisecond) },
		mends:  func(s *stack) error { return s.proxies["firestore"].heal() },
		expects: map[string]time.Duration{
			"LinkreelFirestoreSlow": 630 * time.Second, "LinkreelRedirectsSlow": 630 * time.Second, "LinkreelAPISlow": 660 * time.Second,
		},
	},
	{
		name: "firestore-refuses", what: "Firestore answers but refuses calls (an expired token)",
		breaks: func(ctx context.Context, s *stack) error { return s.refuse(ctx, "firestore") },
		mends:  func(s *stack) error { return s.proxies["firestore"].heal() },
		expects: map[string]time.Duration{
			"LinkreelAPIErrors": time.Minute, "LinkreelRedirectErrors": time.Minute, "LinkreelPlaybackErrors": time.Minute,
			"LinkreelDependencyRefuses refused": 90 * time.Second, "LinkreelKeyChecksRefused": 2 * time.Minute,
		},
		failsPlayback: true,
	},
	{
		name: "indexes-missing", what: "indexes are missing",
		breaks: func(_ context.Context, s *stack) error { return s.dropIndexes() },
		mends:  func(s *stack) error { return s.restoreIndexes() },
		expects: map[string]time.Duration{
			"LinkreelAPIErrors": 45 * time.Second, "LinkreelDependencyRefuses index": 2 * time.Minute,
		},
		afterwards: []string{"LinkreelWebhooksSlow"},
	},
	{
		name: "localcloud-dead", what: "localcloud is dead",
		breaks: func(_ context.Context, s *stack) error { return s.processes["localcloud"].kill() },
		mends:  func(s *stack) error { return s.processes["localcloud"].start() },
		expects: map[string]time.Duration{
			"LinkreelAPIErrors": time.Minute, "LinkreelRedirectErrors": time.Minute, "LinkreelPlaybackErrors": time.Minute,
			"LinkreelDependencyAway": 90 * time.Second, "LinkreelKeyChecksRefused": 2 * time.Minute, "LinkreelServiceGone": 210 * time.Second,
		},
		failsPlayback: true,
	},
	{
		name: "localcloud-disk-full", what: "localcloud's disk is full", disks: []string{"localcloud"},
		breaks: func(ctx context.Context, s *stack) error { return s.fill(ctx, "localcloud") },
		mends:  func(s *stack) error { return s.empty("localcloud") },
		expects: map[string]time.Duration{
			"LinkreelLocalcloudReadOnly": 150 * time.Second, "LinkreelDependencyRefuses quota": 150 * time.Second,
			"LinkreelEventsStuck": 480 * time.Second, "LinkreelAPIErrors": 570 * time.Second, "LinkreelVolumeFilling": 630 * time.Second,
		},
	},
}

// limitRedis sets how much memory Redis may use. Redis runs with the noeviction policy.
func (s *stack) limitRedis(ctx context.Context, memory string) error {
	client := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
	defer client.Close() // the command has its own result
	return client.ConfigSet(ctx, "maxmemory", memory).Err()
}

// swallow makes the proxy accept connections and drop all requests.
func (p *proxy) swallow() error {
	_, err := p.Toxics.AddToxicJson(strings.NewReader(`{"name":"swallow","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`))
	return err
}

// refuse makes the proxy forward to a gRPC server that refuses all calls because of the token,
// until ctx is done.
func (s *stack) refuse(ctx context.Context, name string) error {
	refusing := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "16") // Unauthenticated
		w.Header().Set("Grpc-Message", "the token has expired")
	}))
	refusing.Config.Protocols = &http.Protocols{}
	refusing.Config.Protocols.SetUnencryptedHTTP2(true)
	refusing.Start()
	context.AfterFunc(ctx, refusing.CloseClientConnections)
	return s.proxies[name].forward(refusing.Listener.Addr().String())
}

// forward makes the proxy forward new connections to another server, and closes the existing ones.
func (p *proxy) forward(to string) error {
	return p.Update(&toxiproxy.Proxy{Listen: p.Listen, Upstream: to, Enabled: true})
}

// dropIndexes restarts localcloud with a single index, on a collection that nothing uses.
func (s *stack) dropIndexes() error {
	path := filepath.Join(s.dir, "no-indexes.json")
	unused := `{"indexes":[{"collectionGroup":"unused","queryScope":"COLLECTION","fields":[{"fieldPath":"a","order":"ASCENDING"},{"fieldPath":"b","order":"ASCENDING"}]}]}`
	if err := os.WriteFile(path, []byte(unused), 0o600); err != nil {
		return err
	}
	p := s.processes["localcloud"]
	if err := p.kill(); err != nil {
		return err
	}
	s.indexed = p.args
	p.args = append(slices.DeleteFunc(slices.Clone(p.args), func(arg string) bool { return strings.HasPrefix(arg, "--indexes=") }), "--indexes="+path)
	return p.start()
}

// restoreIndexes restarts localcloud with its indexes.
func (s *stack) restoreIndexes() error {
	p := s.processes["localcloud"]
	if err := p.kill(); err != nil {
		return err
	}
	p.args = s.indexed
	return p.start()
}
