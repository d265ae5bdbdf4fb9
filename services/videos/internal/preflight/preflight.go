// Package preflight checks, with the pods' credentials and settings, that Google Cloud and
// Redis are set up for an installation. The chart runs it as a Job before it rolls out anything,
// with the image and the service account of the videos service, which needs the most permissions.
// For each problem, it prints a sentence that says what is wrong and what to do. It writes only two
// things: a test object, which it deletes, and the format version of an empty database.
package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/redis/go-redis/v9"
	"golang.org/x/oauth2/google"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/redisdb"
)

// preflight is one run of the checks.
type preflight struct {
	Firestore firestoredb.Config `envPrefix:"LINKREEL_"`
	Storage   objectstore.Config `envPrefix:"LINKREEL_"`
	Redis     redisdb.Config     `envPrefix:"LINKREEL_REDIS_"`

	indexes, cors string // paths of the chart's files
	notification  bool
	ownRedis      bool // Redis comes with the chart and may not be installed yet, so it is not checked

	// Google API endpoints, and a client with the credentials.
	firestoreAPI, storageAPI string
	client                   *http.Client

	out        io.Writer
	check      string // the current check
	complaints int    // number of problems that the current check has found
}

const (
	preflightTime = 2 * time.Minute
	// mostSkew is the largest allowed difference between two clocks. Leases and signatures depend
	// on synchronized clocks.
	mostSkew = 5 * time.Second
)

// Run parses the command's arguments, runs each check once and prints a line for it.
// It returns an error if a check fails.
func Run(ctx context.Context, args []string) error {
	p, err := parse(args)
	if err != nil {
		return err
	}
	if p.client, err = google.DefaultClient(ctx, "https://www.googleapis.com/auth/cloud-platform"); err != nil {
		return fmt.Errorf("found no Google Cloud credentials: %w. Bind the pod's service account to a Google one (docs/operations.md, Identity)", err)
	}
	return p.run(ctx)
}

func parse(args []string) (*preflight, error) {
	p := &preflight{out: os.Stdout, firestoreAPI: "https://firestore.googleapis.com", storageAPI: "https://storage.googleapis.com"}
	flags := flag.NewFlagSet("preflight", flag.ContinueOnError)
	flags.StringVar(&p.indexes, "indexes", "", "the chart's firestore.indexes.json")
	flags.StringVar(&p.cors, "cors", "", "the chart's cors.json")
	flags.BoolVar(&p.notification, "notification", false, "check that the bucket sends notifications about uploads")
	flags.BoolVar(&p.ownRedis, "own-redis", false, "skip the Redis check, because the chart installs Redis")
	return p, errors.Join(flags.Parse(args), env.Parse(p))
}

func (p *preflight) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, preflightTime)
	defer cancel()
	checks := []struct {
		name string
		off  bool
		do   func(context.Context)
	}{
		{"clock", false, p.checkClock}, {"indexes", false, p.checkIndexes}, {"TTL policies", false, p.checkTTL}, {"bucket", false, p.checkBucket},
		{"owner", false, p.checkOwner}, {"signing", false, p.checkSigning}, {"Redis", p.ownRedis, p.checkRedis},
		{"notification", !p.notification, p.checkNotification},
	}
	failed := 0
	for _, c := range checks {
		if c.off {
			continue
		}
		p.check, p.complaints = c.name, 0
		if c.do(ctx); p.complaints > 0 {
			failed++
			continue
		}
		fmt.Fprintf(p.out, "ok      %s\n", c.name)
	}
	if failed > 0 {
		return fmt.Errorf("%d checks failed; see the lines above", failed)
	}
	return nil
}

// complain prints a failure in the current check: what is wrong and what to do about it.
func (p *preflight) complain(format string, args ...any) {
	p.complaints++
	fmt.Fprintf(p.out, "FAILED  %s: %s\n", p.check, fmt.Sprintf(format, args...))
}

func (p *preflight) note(format string, args ...any) {
	fmt.Fprintf(p.out, "note    %s: %s\n", p.check, fmt.Sprintf(format, args...))
}

// get reads JSON from one of Google's APIs.
func (p *preflight) get(ctx context.Context, address string, into any) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		var e struct {
			Error struct{ Message string } `json:"error"`
		}
		_ = json.Unmarshal(raw, &e)
		return res.Header, fmt.Errorf("the API returned %d %s", res.StatusCode, e.Error.Message)
	}
	return res.Header, json.Unmarshal(raw, into)
}

// want reads one of the chart's files.
func (p *preflight) want(file string, into any) bool {
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		p.complain("cannot read the chart's file: %v", err)
	}
	return err == nil
}

func (p *preflight) checkClock(ctx context.Context) {
	began := time.Now()
	header, err := p.get(ctx, p.database(), &struct{}{})
	if header == nil {
		p.complain("cannot reach Firestore: %v. Check networkPolicy.googleTo and the private endpoint.", err)
		return
	}
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	// The header has one-second resolution and was written between the request and now.
	if early, late := began.Sub(date), time.Until(date); early > mostSkew+time.Second || late > mostSkew {
		p.complain("this node's clock and Google's are %v apart. Leases and signed URLs allow at most %v. Check NTP on the nodes.",
			max(early, late).Round(time.Second), mostSkew)
	}
}

func (p *preflight) checkRedis(ctx context.Context) {
	client, err := redisdb.Open(p.Redis)
	if err != nil {
		p.complain("%v", err)
		return
	}
	defer func() { _ = client.Close() }()
	facts, err := redisFacts(ctx, client)
	if err != nil {
		p.complain("cannot reach Redis: %v. Check the address, the password, redis.external.caFile and networkPolicy.redisTo.", err)
		return
	}
	if policy := facts["maxmemory_policy"]; policy != "noeviction" {
		p.complain("Redis has the maxmemory-policy %s, which evicts clicks and wake-ups when memory is low. Set it to noeviction.", policy)
	}
	// Valkey always reports redis_version 7.2, and its own version as valkey_version.
	if major, _, _ := strings.Cut(facts["redis_version"], "."); len(major) == 1 && major < "7" {
		p.complain("Redis is version %s. Use 7 or later, or Valkey.", facts["redis_version"])
	}
	if facts["aof_enabled"] != "1" {
		p.note("Redis has no append-only file, so a restart loses the clicks since its last snapshot.")
	}
	if now, err := client.Time(ctx).Result(); err == nil {
		if skew := time.Since(now).Abs(); skew > mostSkew {
			p.complain("this node's clock and Redis's are %v apart. Rate limits depend on both. Check NTP.", skew.Round(time.Second))
		}
	}
}

func redisFacts(ctx context.Context, client redis.UniversalClient) (map[string]string, error) {
	text, err := client.Info(ctx).Result()
	facts := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	return facts, err
}
