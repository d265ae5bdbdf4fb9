package redistest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/redisproc"
)

// Cluster runs a Redis Cluster of masters, each with one replica if replicas is set. It returns
// when the cluster serves all slots. The result lists the masters first and then their replicas in
// the same order.
func Cluster(tb testing.TB, masters int, replicas bool) []*redisproc.Server {
	tb.Helper()
	n := masters
	if replicas {
		n *= 2
	}
	var servers []*redisproc.Server
	var buses []string
	for range n {
		bus := freePort(tb)
		servers = append(servers, start(tb, redisproc.Options{Dir: tb.TempDir(), Args: []string{"--cluster-enabled", "yes", "--cluster-port", bus,
			"--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"}}))
		buses = append(buses, bus)
	}
	for i, s := range servers {
		if i < masters {
			Do(tb, s.Addr(), "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*16384/masters), strconv.Itoa((i+1)*16384/masters-1))
		}
		if i > 0 {
			host, port, _ := net.SplitHostPort(s.Addr())
			Do(tb, servers[0].Addr(), "CLUSTER", "MEET", host, port, buses[i])
		}
	}
	until(tb, "the servers of the cluster have found each other", func() bool {
		for _, s := range servers {
			if strings.Count(Do(tb, s.Addr(), "CLUSTER", "NODES"), "connected") < n {
				return false
			}
		}
		return true
	})
	for i := masters; i < n; i++ {
		id := Do(tb, servers[i-masters].Addr(), "CLUSTER", "MYID")
		until(tb, "a server becomes a replica", func() bool { return Do(tb, servers[i].Addr(), "CLUSTER", "REPLICATE", id) == "OK" })
	}
	until(tb, "the cluster is ready", func() bool {
		for i, s := range servers {
			if !strings.Contains(Do(tb, s.Addr(), "CLUSTER", "INFO"), "cluster_state:ok") {
				return false
			}
			if i >= masters && !strings.Contains(Do(tb, s.Addr(), "INFO", "replication"), "master_link_status:up") {
				return false
			}
		}
		return true
	})
	return servers
}

// Replica runs a server that replicates primary.
func Replica(tb testing.TB, primary *redisproc.Server) *redisproc.Server {
	tb.Helper()
	host, port, _ := net.SplitHostPort(primary.Addr())
	s := start(tb, redisproc.Options{Dir: tb.TempDir(), Args: []string{"--replicaof", host + " " + port}})
	until(tb, "the replica is in sync", func() bool {
		return strings.Contains(Do(tb, s.Addr(), "INFO", "replication"), "master_link_status:up")
	})
	return s
}

// Sentinel runs a Redis Sentinel. It monitors primary under the given name and promotes a replica
// if primary fails.
func Sentinel(tb testing.TB, name string, primary *redisproc.Server) *redisproc.Server {
	tb.Helper()
	s := start(tb, redisproc.Options{Dir: tb.TempDir(), Sentinel: true})
	host, port, _ := net.SplitHostPort(primary.Addr())
	Do(tb, s.Addr(), "SENTINEL", "MONITOR", name, host, port, "1")
	Do(tb, s.Addr(), "SENTINEL", "SET", name, "down-after-milliseconds", "500", "failover-timeout", "3000")
	until(tb, "the Sentinel has found the replica", func() bool {
		return strings.Contains(Do(tb, s.Addr(), "INFO", "sentinel"), "slaves=1")
	})
	return s
}

// Do runs one command and returns its response as text, even if the response is an error.
func Do(tb testing.TB, addr string, args ...string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(conn, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(a), a)
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	line = strings.TrimRight(line, "\r\n")
	if !strings.HasPrefix(line, "$") {
		return strings.TrimLeft(line, "+-:")
	}
	size, _ := strconv.Atoi(line[1:]) // -1 means nil, which is returned as ""
	body := make([]byte, max(size, 0))
	if _, err := io.ReadFull(r, body); err != nil {
		return err.Error()
	}
	return string(body)
}

func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("condition not met within 30 s: %s", what)
		}
	}
}

func freePort(tb testing.TB) string {
	tb.Helper()
	addr, err := redisproc.FreeAddr()
	if err != nil {
		tb.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)
	return port
}
