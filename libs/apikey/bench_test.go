package apikey_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

// BenchmarkAuthenticate measures what authentication adds to each API request: one Redis round
// trip. For comparison, the ping case measures the round trip alone.
func BenchmarkAuthenticate(b *testing.B) {
	ring := &keyring{}
	r := newReplica(b, ring, redistest.Start(b))
	key := ring.add(b, "acc_1", identity.Enterprise)
	accept(b, r, key)
	b.Run("one at a time", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Authenticate(b.Context(), key, netip.Addr{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("in parallel", func(b *testing.B) {
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := r.Authenticate(b.Context(), key, netip.Addr{}); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("ping", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := r.redis.Ping(b.Context()).Err(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ping in parallel", func(b *testing.B) {
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := r.redis.Ping(b.Context()).Err(); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// BenchmarkRefuse measures the cost of rejecting an invalid key.
func BenchmarkRefuse(b *testing.B) {
	ring := &keyring{}
	r := newReplica(b, ring, redistest.Start(b))
	unknown := ring.add(b, "acc_1", identity.Free)
	delete(ring.keys, mustHash(b, unknown))
	for name, key := range map[string]string{"malformed": fmt.Sprintf("lr_live_%038d", 1), "unknown": unknown} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Authenticate(b.Context(), key, netip.Addr{}); err == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}

func mustHash(tb testing.TB, key string) string {
	tb.Helper()
	k, err := identity.ParseKey(key, identity.KeyPrefix, identity.SessionPrefix)
	if err != nil {
		tb.Fatal(err)
	}
	return k.Hash()
}

var _ apikey.Source = (*keyring)(nil)
