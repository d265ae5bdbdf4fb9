package standalone_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/console"
	"github.com/linkreel/linkreel/services/events"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
	"github.com/linkreel/linkreel/services/standalone"
	"github.com/linkreel/linkreel/services/standalone/internal/gateway"
	worker "github.com/linkreel/linkreel/services/transcoding-worker"
	"github.com/linkreel/linkreel/services/videos"
)

const chart = "../../charts/linkreel"

// settings returns the names of the variables that each service reads.
func settings(t *testing.T) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	for service, config := range map[string]any{
		"auth": &auth.Config{}, "console": &console.Config{}, "events": &events.Config{}, "links": &links.Config{}, "videos": &videos.Config{}, "worker": &worker.Config{},
	} {
		fields, err := env.GetFieldParams(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fields {
			names[service] = append(names[service], f.Key)
		}
	}
	return names
}

// TestChartSetsWhatServicesRead is in this module because this module imports all services.
func TestChartSetsWhatServicesRead(t *testing.T) {
	t.Parallel()
	known := settings(t)
	t.Run("every variable in the template is a setting of some service", func(t *testing.T) {
		t.Parallel()
		text, err := os.ReadFile(filepath.Join(chart, "templates/_env.tpl"))
		if err != nil {
			t.Fatal(err)
		}
		all := slices.Concat(known["auth"], known["console"], known["events"], known["links"], known["videos"], known["worker"])
		names := regexp.MustCompile(`\b(LINKREEL|DNS)_[A-Z_]*[A-Z]\b`).FindAllString(string(text), -1)
		if len(names) < 15 {
			t.Fatalf("the template contains only the variables %v, want at least 15", names)
		}
		for _, name := range names {
			if !slices.Contains(all, name) {
				t.Errorf("the chart sets %s, which no service reads", name)
			}
		}
	})
	t.Run("every setting has a value or is documented in operations.md", func(t *testing.T) {
		t.Parallel()
		template, err := os.ReadFile(filepath.Join(chart, "templates/_env.tpl"))
		if err != nil {
			t.Fatal(err)
		}
		docs, err := os.ReadFile("../../docs/operations.md")
		if err != nil {
			t.Fatal(err)
		}
		for service, names := range known {
			for _, name := range names {
				// The template derives the listeners' addresses from the port names.
				if strings.HasSuffix(name, "_ADDR") || strings.Contains(string(template), name) || strings.Contains(string(docs), "`"+name+"`") {
					continue
				}
				t.Errorf("%s reads %s, which has no value in the chart and is not in docs/operations.md", service, name)
			}
		}
	})
	t.Run("every rendered variable is a setting of its service", func(t *testing.T) {
		t.Parallel()
		files, err := filepath.Glob(filepath.Join(chart, "ci/*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no values files to render with: %v", err)
		}
		for _, file := range files {
			for service, names := range renderedEnv(t, file) {
				for _, name := range names {
					if !slices.Contains(known[service], name) {
						t.Errorf("%s: the chart sets %s for %s, which does not read it", filepath.Base(file), name, service)
					}
				}
			}
		}
	})
}

// renderedEnv returns the names of the variables that the rendered chart sets for each service's
// container.
func renderedEnv(t *testing.T, values string) map[string][]string {
	t.Helper()
	helm, err := exec.LookPath("../../.local/bin/helm")
	if err != nil {
		if helm, err = exec.LookPath("helm"); err != nil {
			t.Fatal("helm is not installed; run `make chart` to build it")
		}
	}
	out, err := exec.CommandContext(t.Context(), helm, "template", "try", chart, "--show-only", "templates/workloads.yaml", "--values", values).Output()
	if err != nil {
		t.Fatalf("helm template --values %s: %v", values, err)
	}
	names := map[string][]string{}
	for object := range strings.SplitSeq(string(out), "\n---") {
		service := regexp.MustCompile(`app.kubernetes.io/component: (\w+)`).FindStringSubmatch(object)
		if !strings.Contains(object, "\nkind: Deployment\n") || service == nil {
			continue
		}
		for _, m := range regexp.MustCompile(`- \{?name: ((?:LINKREEL|DNS)_\w+)`).FindAllStringSubmatch(object, -1) {
			names[service[1]] = append(names[service[1]], m[1])
		}
	}
	if len(names) != 6 {
		t.Fatalf("rendered Deployments of %d services, want 6", len(names))
	}
	return names
}

// TestServicesTakeThePasswordOfRedisApart is in this module because this module imports all
// services. The Redis password is in a separate variable, and each service must send it to
// Redis.
func TestServicesTakeThePasswordOfRedisApart(t *testing.T) {
	t.Parallel()
	const password = "a/b#c?d%e f"
	open := func(secret string) (string, *redis.Client) {
		server := redistest.Server(t)
		if err := redis.NewClient(&redis.Options{Addr: server.Addr()}).ConfigSet(t.Context(), "requirepass", secret).Err(); err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: secret})
		t.Cleanup(func() { _ = client.Close() })
		return server.Addr(), client
	}
	addr, client := open(password)
	clicks, _ := open("another one")
	base := map[string]string{
		"LINKREEL_REDIS_URL": "redis://" + addr + "/0", "LINKREEL_REDIS_PASSWORD": password, "LINKREEL_INTERNAL_TOKEN": "x",
		"LINKREEL_FIRESTORE_PROJECT": "p", "LINKREEL_FIRESTORE_ENDPOINT": "127.0.0.1:1", "LINKREEL_STORAGE_BUCKET": "b", "LINKREEL_STORAGE_ENDPOINT": "http://127.0.0.1:1",
		"LINKREEL_STORAGE_PUBLIC_URL": "http://127.0.0.1:1", "LINKREEL_TOKEN_SECRET": strings.Repeat("00", 32), "LINKREEL_WEBHOOK_SECRET_KEY": strings.Repeat("k", 32), "LINKREEL_JAIL": "reduced",
	}
	for name, tt := range map[string]struct {
		service func(*testing.T, map[string]string) *boot.Service
		extra   map[string]string
	}{
		"auth":                                   {service: from(auth.New)},
		"events":                                 {service: from(events.New)},
		"links":                                  {service: from(links.New)},
		"links with a separate Redis for clicks": {service: from(links.New), extra: map[string]string{"LINKREEL_CLICKS_REDIS_URL": clicks, "LINKREEL_CLICKS_REDIS_PASSWORD": "another one"}},
		"videos":                                 {service: from(videos.New)},
		"worker":                                 {service: from(worker.New)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := maps.Clone(base)
			settings["LINKREEL_SPOOL_DIR"], settings["LINKREEL_SCRATCH_DIR"] = t.TempDir(), t.TempDir()
			maps.Copy(settings, tt.extra)
			svc := tt.service(t, settings)
			asked := 0
			for _, call := range svc.WarmUp {
				if strings.HasPrefix(call.To, "Redis") {
					asked++
					if err := call.Do(t.Context()); err != nil {
						t.Errorf("%s: %v", call.To, err)
					}
				}
			}
			if asked > 0 {
				return
			}
			// A worker has no warm-up calls. It creates its consumer group on the queue once Redis
			// accepts the password.
			ctx, cancel := context.WithCancel(t.Context())
			group, loops := errgroup.WithContext(ctx)
			boot.StartLoops(loops, group, svc)
			defer func() { cancel(); _ = group.Wait() }()
			for deadline := time.Now().Add(time.Minute); client.Exists(t.Context(), "queue:{jobs}").Val() == 0; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the worker has not created its consumer group")
				}
			}
		})
	}
}

// from returns a function that creates a service from settings, the way the service's own main does
// from the environment.
func from[C any](make func(context.Context, C) (*boot.Service, error)) func(*testing.T, map[string]string) *boot.Service {
	return func(t *testing.T, settings map[string]string) *boot.Service {
		t.Helper()
		var cfg C
		if err := env.ParseWithOptions(&cfg, env.Options{Environment: settings}); err != nil {
			t.Fatal(err)
		}
		svc, err := make(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = boot.CloseAll(context.WithoutCancel(t.Context()), svc) })
		return svc
	}
}

func TestChartRoutesLikeTheGateway(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(chart, "templates/_helpers.tpl"))
	if err != nil {
		t.Fatal(err)
	}
	var got []gateway.Route
	for _, m := range regexp.MustCompile(`- \{path: (\S+), service: (\w+)\}`).FindAllStringSubmatch(string(text), -1) {
		got = append(got, gateway.Route{Prefix: m[1], Service: m[2]})
	}
	if !slices.Equal(got, gateway.Routes) {
		t.Errorf("the routes differ:\nchart   %v\ngateway %v", got, gateway.Routes)
	}
}

// Indexes must contain every index file. If one were missing, queries would fail only in local
// runs.
func TestIndexesAreThoseOfTheChart(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(chart, "files/firestore.indexes.json"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := firestore.ParseIndexes(text)
	if err != nil {
		t.Fatal(err)
	}
	got, err := firestore.ParseIndexes(standalone.Indexes()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []*firestore.Indexes{want, got} {
		slices.SortFunc(x.Composite, func(a, b firestore.Index) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		// Two services may need the same index.
		x.Composite = slices.CompactFunc(x.Composite, func(a, b firestore.Index) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
		slices.SortFunc(x.Overrides, func(a, b firestore.FieldOverride) int {
			return strings.Compare(a.CollectionGroup+"."+a.FieldPath, b.CollectionGroup+"."+b.FieldPath)
		})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the indexes differ from the chart's (-chart +standalone):\n%s", diff)
	}
}
