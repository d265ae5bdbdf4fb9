package cloudtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Emulator is Google's Firestore emulator. Few machines have it installed. Several tests can share
// one Emulator. The token [EmulatorToken] allows every call. The zero value is an emulator that has
// not been started.
type Emulator struct {
	once sync.Once
	addr string
	err  error
	log  strings.Builder
	cmd  *exec.Cmd
}

// EmulatorToken is the bearer token that makes the emulator ignore its security rules.
const EmulatorToken = "owner"

// Address starts the emulator on the first call and returns its address once it is ready. If the
// emulator is not installed, Address skips the test and appends without to the reason.
func (e *Emulator) Address(tb testing.TB, without string) string {
	tb.Helper()
	jar := os.Getenv("FIRESTORE_EMULATOR_JAR")
	if found, _ := filepath.Glob("/usr/lib/google-cloud-sdk/platform/cloud-firestore-emulator/*.jar"); jar == "" && len(found) > 0 {
		jar = found[0]
	}
	java, err := exec.LookPath("java")
	if jar == "" || err != nil {
		tb.Skip("Google's emulator is not installed: it needs java and FIRESTORE_EMULATOR_JAR, and Debian has no package for it. " + without)
	}
	e.once.Do(func() { e.err = e.start(java, jar) })
	if e.err != nil {
		tb.Fatalf("cannot start Google's emulator: %v", e.err)
	}
	return e.addr
}

func (e *Emulator) start(java, jar string) error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	e.addr = l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(e.addr)
	if err != nil {
		return err
	}
	// Use a background context because the emulator must outlive the test that starts it.
	e.cmd = exec.CommandContext(context.Background(), java, "-Xmx1g", "-Duser.language=en", "-cp", jar,
		"com.google.cloud.datastore.emulator.firestore.CloudFirestore", "--host=127.0.0.1", "--port="+port)
	e.cmd.Stdout, e.cmd.Stderr = &e.log, &e.log
	if err := e.cmd.Start(); err != nil {
		return err
	}
	conn, err := grpc.NewClient(e.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	// WaitForReady makes a polling loop unnecessary. Any response shows that the emulator is ready.
	_, err = pb.NewFirestoreClient(conn).ListCollectionIds(
		ctx, &pb.ListCollectionIdsRequest{Parent: "projects/p/databases/(default)/documents"}, grpc.WaitForReady(true),
	)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("the emulator is not ready after 5 minutes: %w", err)
	}
	return nil
}

// Stop stops the emulator if a test has started it. If any test failed, Stop prints the end of the
// emulator's log.
func (e *Emulator) Stop(failed bool) {
	if e.cmd == nil || e.cmd.Process == nil {
		return
	}
	_ = e.cmd.Process.Kill()
	_ = e.cmd.Wait()
	if failed {
		log := e.log.String()
		fmt.Printf("emulator:\n%s\n", log[max(0, len(log)-2000):])
	}
}
