package cluster

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lists returns the names of the entries in the lists of a service's pods and containers. The keys
// are the names of the lists.
func lists(t *testing.T, objects []object, service string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, p := range pods(objects) {
		if p.component() != service || !strings.HasPrefix(p.owner, "Deployment") {
			continue
		}
		found["volumes"] = p.volumes
		for _, c := range p.containers {
			found["containers"] = append(found["containers"], fmt.Sprint(c["name"]))
			for list, key := range map[string]string{"env": "name", "volumeMounts": "mountPath"} {
				for _, item := range listAt(c, list) {
					found[list] = append(found[list], fmt.Sprint(item[key]))
				}
			}
			for _, from := range listAt(c, "envFrom") {
				found["envFrom"] = append(found["envFrom"], fmt.Sprint(from.at("configMapRef", "name")))
			}
		}
	}
	return found
}

func TestListsOfDefaultsAndOfAServiceAreJoined(t *testing.T) {
	t.Parallel()
	block := func(name string) map[string]any {
		return map[string]any{
			"extraEnv":          []any{map[string]any{"name": "LINKREEL_" + strings.ToUpper(name), "value": name}},
			"extraEnvFrom":      []any{map[string]any{"configMapRef": map[string]any{"name": name}}},
			"extraVolumes":      []any{map[string]any{"name": name, "configMap": map[string]any{"name": name}}},
			"initContainers":    []any{map[string]any{"name": "before-" + name, "image": "busybox"}},
			"extraVolumeMounts": []any{map[string]any{"name": name, "mountPath": "/etc/" + name}},
		}
	}
	objects, err := render(t, "--values", valuesFile(t, map[string]any{"defaults": block("shared"), "links": block("own")}))
	if err != nil {
		t.Fatal(err)
	}
	for service, own := range map[string]bool{"links": true, "auth": false, "worker": false} {
		got := lists(t, objects, service)
		for list, want := range map[string][2]string{
			"env": {"LINKREEL_SHARED", "LINKREEL_OWN"}, "envFrom": {"shared", "own"}, "volumes": {"shared", "own"}, "volumeMounts": {"/etc/shared", "/etc/own"},
			"containers": {"before-shared", "before-own"},
		} {
			if !slices.Contains(got[list], want[0]) || slices.Contains(got[list], want[1]) != own {
				t.Errorf("%s has the %s %v, want %s from defaults, and %s from links: %v", service, list, got[list], want[0], want[1], own)
			}
		}
	}
}

// Namespaces with the "restricted" standard reject pods that have an init container without these
// settings.
func TestInitContainersHaveTheServicesSecurityContext(t *testing.T) {
	t.Parallel()
	objects, err := render(t, "--values", valuesFile(t, map[string]any{"links": map[string]any{"initContainers": []any{
		map[string]any{"name": "own", "image": "x", "securityContext": map[string]any{"readOnlyRootFilesystem": false}},
		map[string]any{"name": "none", "image": "x"},
	}}}))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, p := range pods(objects) {
		for _, c := range listAt(p.spec, "initContainers") {
			found[fmt.Sprint(c["name"])] = true
			if c.at("securityContext", "allowPrivilegeEscalation") != false || c.at("securityContext", "readOnlyRootFilesystem") != (c["name"] == "none") {
				t.Errorf("the init container %s has the security context %v", c["name"], c["securityContext"])
			}
		}
	}
	if !found["own"] || !found["none"] {
		t.Errorf("the init containers are %v, want own and none", found)
	}
}

func TestEntriesWithTheSameNameAreRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ args, want string }{
		"a variable in defaults and in a service":   {"defaults.extraEnv[0].name=LINKREEL_X,links.extraEnv[0].name=LINKREEL_X", `links has "LINKREEL_X" twice`},
		"a variable that the chart sets":            {"videos.extraEnv[0].name=LINKREEL_BASE_URL", "change the chart's value in env"},
		"a variable in env and in extraEnv":         {"events.env.LINKREEL_EVENTS_SWEEP=1s,events.extraEnv[0].name=LINKREEL_EVENTS_SWEEP", `events has "LINKREEL_EVENTS_SWEEP" twice`},
		"a volume in defaults and in a service":     {"defaults.extraVolumes[0].name=ca,auth.extraVolumes[0].name=ca", `auth has "ca" twice`},
		"a volume of the chart":                     {"worker.extraVolumes[0].name=scratch", `worker has "scratch" twice`},
		"a mount path":                              {"console.extraVolumeMounts[0].name=tmp,console.extraVolumeMounts[0].mountPath=/tmp", `console has "/tmp" twice`},
		"a mount without a volume":                  {"links.extraVolumeMounts[0].name=ca,links.extraVolumeMounts[0].mountPath=/ca", "no volume has that name"},
		"an init container with the service's name": {"links.initContainers[0].name=links,links.initContainers[0].image=x", `links has "links" twice`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := render(t, "--set", tt.args); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("helm template with --set %s returned %v, want an error with %q", tt.args, err, tt.want)
			}
		})
	}
}

// Without trusted hops, every visitor would appear to have the load balancer's address.
func TestGooglesBalancersAppendTwoAddresses(t *testing.T) {
	t.Parallel()
	google := []string{"--values", filepath.Join(chart, "ci/google.yaml")}
	for name, tt := range map[string]struct {
		args  []string
		hops  string
		error string
	}{
		"any cluster":                 {nil, "", ""},
		"any cluster, zero hops":      {[]string{"--set", "trustedProxyHops=0"}, "", ""},
		"any cluster, one hop":        {[]string{"--set", "trustedProxyHops=1"}, "1", ""},
		"Google":                      {google, "2", ""},
		"Google with a Gateway":       {[]string{"--values", filepath.Join(chart, "ci/gke-gateway.yaml")}, "2", ""},
		"Google behind another proxy": {append(google, "--set", "trustedProxyHops=3"), "3", ""},
		"Google, zero hops":           {append(google, "--set", "trustedProxyHops=0"), "", "append two addresses"},
		"Google, one hop":             {append(google, "--set", "trustedProxyHops=1"), "", "append two addresses"},
		"Google with certificates":    {append(google, "--set", "tls.onDemand.enabled=true"), "", "exclude each other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := render(t, tt.args...)
			if tt.error != "" {
				if err == nil || !strings.Contains(err.Error(), tt.error) {
					t.Errorf("helm template returned %v, want an error with %q", err, tt.error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, service := range []string{"auth", "console", "events", "links", "videos"} {
				if got := environment(objects, service)["LINKREEL_TRUSTED_PROXY_HOPS"]; got != tt.hops {
					t.Errorf("%s trusts %q hops, want %q", service, got, tt.hops)
				}
			}
		})
	}
}

// The chart trusts Istio's sidecars only while all visitors who use plain HTTP come through a proxy.
func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	const private, sidecar = "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10,fc00::/7", ",127.0.0.6/32,::6/128"
	for name, tt := range map[string]struct {
		set  string
		want string
	}{
		"the default":                       {"", private + sidecar},
		"port 80 is open to visitors":       {"tls.onDemand.enabled=true", private},
		"only port 443 is open to visitors": {"tls.onDemand.enabled=true,tls.onDemand.service.http=false", private + sidecar},
		"no Service for visitors":           {"tls.onDemand.enabled=true,tls.onDemand.service.enabled=false", private + sidecar},
		"networks without loopback":         {"tls.onDemand.enabled=true,trustedProxies={128.0.0.0/1,126.0.0.0/8,10.127.0.0/16,1::/16}", "128.0.0.0/1,126.0.0.0/8,10.127.0.0/16,1::/16"},
		"loopback behind a proxy":           {"trustedProxies={127.0.0.0/8}", "127.0.0.0/8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := render(t, "--set", tt.set)
			if err != nil {
				t.Fatal(err)
			}
			for _, service := range []string{"auth", "console", "events", "links", "videos"} {
				if got := environment(objects, service)["LINKREEL_TRUSTED_PROXIES"]; got != tt.want {
					t.Errorf("%s trusts %q, want %q", service, got, tt.want)
				}
			}
		})
	}
}

// outsideRedis lists the ports that a service may call at the peers of networkPolicy.redisTo.
func outsideRedis(objects []object, service string) (ports []string) {
	for _, o := range objects {
		if o.kind() != "NetworkPolicy" || !strings.HasSuffix(o.name(), "-"+service) {
			continue
		}
		for _, rule := range listAt(o, "spec", "egress") {
			for _, port := range listAt(rule, "ports") {
				if to := listAt(rule, "to"); len(to) == 1 && to[0].at("ipBlock", "cidr") == "198.51.100.0/24" {
					text := fmt.Sprint(port["port"])
					if end := port["endPort"]; end != nil {
						text += fmt.Sprint("-", end)
					}
					ports = append(ports, text)
				}
			}
		}
	}
	return ports
}

func TestARedisElsewhereCanBeReached(t *testing.T) {
	t.Parallel()
	to := []string{"--set-json", `networkPolicy.redisTo=[{"ipBlock":{"cidr":"198.51.100.0/24"}}]`}
	external := func(url string) []string {
		return []string{"--set", "redis.enabled=false", "--set-string", "redis.external.url=" + strings.ReplaceAll(url, ",", `\,`)}
	}
	for name, tt := range map[string]struct {
		args  []string
		links []string
		auth  []string
	}{
		"the chart's Redis":                 {nil, nil, nil},
		"one server":                        {external("redis://r:6379/0"), []string{"6379"}, []string{"6379"}},
		"a different port, with a password": {external("rediss://u:p:1@r:6378/0?x=:9"), []string{"6379", "6378"}, []string{"6379", "6378"}},
		"Sentinels":                         {external("redis://s1:26379,s2:26380?master=m"), []string{"6379", "26379", "26380"}, []string{"6379", "26379", "26380"}},
		"an address in a Secret":            {[]string{"--set", "redis.enabled=false,redis.external.existingSecret=r,networkPolicy.externalRedisPorts={6378}"}, []string{"6378"}, []string{"6378"}},
		"a separate Redis for clicks":       {[]string{"--set", "links.env.LINKREEL_CLICKS_REDIS_URL=redis://c:7000"}, []string{"6379", "7000"}, nil},
		"a separate Redis for clicks, address in a Secret": {[]string{"--set", "links.extraEnv[0].name=LINKREEL_CLICKS_REDIS_URL,links.extraEnv[0].valueFrom.secretKeyRef.name=c,links.extraEnv[0].valueFrom.secretKeyRef.key=url"}, []string{"6379"}, nil},
		"an external Redis and another for clicks":         {append(external("redis://r:6379"), "--set", "links.env.LINKREEL_CLICKS_REDIS_URL=c:7000"), []string{"6379", "7000"}, []string{"6379"}},
		"a range of ports, as in Memorystore":              {append(external("redis://r:6379?cluster=true"), "--set-json", `networkPolicy.externalRedisPorts=[{"port":11000,"endPort":11002}]`), []string{"11000-11002", "6379"}, []string{"11000-11002", "6379"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := render(t, append(to, tt.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			for service, want := range map[string][]string{"links": tt.links, "auth": tt.auth, "console": nil} {
				if diff := cmp.Diff(want, outsideRedis(objects, service)); diff != "" {
					t.Errorf("%s may call these Redis ports (-want +got):\n%s", service, diff)
				}
			}
		})
	}
}

// letsKEDAIn reports whether KEDA's operator may call the chart's Redis.
func letsKEDAIn(objects []object) bool {
	return slices.ContainsFunc(objects, func(o object) bool {
		return o.kind() == "NetworkPolicy" && strings.HasSuffix(o.name(), "-redis") && slices.ContainsFunc(listAt(o, "spec", "ingress"), func(rule object) bool {
			from, ports := listAt(rule, "from"), listAt(rule, "ports")
			return len(from) == 1 && from[0].at("podSelector", "matchLabels", "app") == "keda-operator" && from[0]["namespaceSelector"] != nil && ports[0]["port"] == "redis"
		})
	})
}

func TestKEDAWithEachFormOfRedis(t *testing.T) {
	t.Parallel()
	external := func(address string, more ...string) []string {
		return append([]string{"--set", "worker.keda.enabled=true,worker.keda.address=r:6379\\,r2:6379,worker.keda.triggerAuthentication=keda,redis.enabled=false", "--set-string", "redis.external.url=" + address}, more...)
	}
	for name, tt := range map[string]struct {
		args []string
		want map[string]any
	}{
		"the chart's Redis": {
			[]string{"--set", "worker.keda.enabled=true"},
			map[string]any{"type": "redis-streams", "address": "try-linkreel-redis.ns.svc:6379", "auth": "try-linkreel-redis"},
		},
		"TLS": {external("rediss://r:6379"), map[string]any{"type": "redis-streams", "address": "r:6379,r2:6379", "enableTLS": "true", "auth": "keda"}},
		"TLS and an address in a Secret": {
			[]string{"--set", "worker.keda.enabled=true,worker.keda.address=r:6378,redis.enabled=false,redis.external.existingSecret=s", "--set-string", "worker.keda.metadata.enableTLS=true,worker.keda.metadata.unsafeSsl=true"},
			map[string]any{"type": "redis-streams", "address": "r:6378", "enableTLS": "true", "unsafeSsl": "true", "auth": nil},
		},
		"Sentinels": {
			external(`redis://s1:26379\,s2:26379?master=m`, "--set", "worker.keda.trigger=redis-sentinel-streams,worker.keda.metadata.sentinelMaster=m"),
			map[string]any{"type": "redis-sentinel-streams", "addresses": "r:6379,r2:6379", "sentinelMaster": "m", "auth": "keda"},
		},
		"a Cluster": {
			external(`redis://r:6379\,r2:6379`, "--set", "worker.keda.trigger=redis-cluster-streams"),
			map[string]any{"type": "redis-cluster-streams", "addresses": "r:6379,r2:6379", "auth": "keda"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := render(t, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objects {
				if o.kind() != "ScaledObject" {
					continue
				}
				trigger := listAt(o, "spec", "triggers")[0]
				got := map[string]any{"type": trigger["type"], "auth": trigger.at("authenticationRef", "name")}
				for key, v := range mapAt(trigger, "metadata") {
					got[key] = v
				}
				tt.want["stream"], tt.want["streamLength"] = "queue:{jobs}", "1"
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("the trigger differs (-want +got):\n%s", diff)
				}
				if own := got["auth"] == "try-linkreel-redis"; own != letsKEDAIn(objects) {
					t.Errorf("the trigger uses the chart's Redis: %v, but its NetworkPolicy admits KEDA: %v", own, !own)
				}
				return
			}
			t.Error("the chart does not render a ScaledObject")
		})
	}
	if _, err := render(t, "--set", "worker.keda.trigger=redis"); err == nil || !strings.Contains(err.Error(), "trigger") {
		t.Errorf("an unknown trigger returned %v, want an error with \"trigger\"", err)
	}
}

func TestFurtherRulesOfTheNetworkPolicies(t *testing.T) {
	t.Parallel()
	objects, err := render(t, "--set-json", `networkPolicy.extraEgress={"defaults":[{"ports":[{"port":5353}]}],"links":[{"ports":[{"port":7001}]}],"redis":[{"ports":[{"port":7002}]}],"localcloud":[{"ports":[{"port":7003}]}]}`,
		"--set-json", `networkPolicy.extraIngress={"defaults":[{"ports":[{"port":5354}]}],"links":[{"ports":[{"port":7004}]}],"redis":[{"ports":[{"port":7005}]}],"localcloud":[{"ports":[{"port":7006}]}]}`)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, o := range objects {
		if o.kind() != "NetworkPolicy" {
			continue
		}
		for _, side := range []string{"egress", "ingress"} {
			for _, rule := range listAt(o, "spec", side) {
				for _, port := range listAt(rule, "ports") {
					if n, _ := port["port"].(int); n >= 5353 && n < 7010 && n != 6379 {
						got[strings.TrimPrefix(o.name(), "try-linkreel-")] = append(got[strings.TrimPrefix(o.name(), "try-linkreel-")], fmt.Sprint(n))
					}
				}
			}
		}
	}
	common := []string{"5353", "5354"}
	want := map[string][]string{
		"auth": common, "console": common, "events": common, "videos": common, "worker": common,
		"links": {"5353", "7001", "5354", "7004"}, "redis": {"7002", "7005"}, "localcloud": {"7003", "7006"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the ports in the extra rules differ (-want +got):\n%s", diff)
	}
	if _, err := render(t, "--set-json", `networkPolicy.extraEgress={"link":[]}`); err == nil {
		t.Error("rules for an unknown component returned no error, want one")
	}
}

func TestNetworksOfBothFamilies(t *testing.T) {
	t.Parallel()
	objects, err := render(t, "--values", filepath.Join(chart, "ci/google.yaml"), "--set", "networkPolicy.googleTo=null,ipFamilyPolicy=PreferDualStack",
		"--set", "networkPolicy.externalCIDRs={0.0.0.0/0,2000::/3},networkPolicy.externalExcept={10.0.0.0/8,2001:db8::/32}")
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"ipBlock":{"cidr":"0.0.0.0/0","except":["10.0.0.0/8"]}},{"ipBlock":{"cidr":"2000::/3","except":["2001:db8::/32"]}}]`
	for _, rule := range egress(t, objects, "auth") {
		if peers, ok := strings.CutPrefix(rule, "443 "); ok && "["+strings.ReplaceAll(peers, " ", ",")+"]" != want {
			t.Errorf("auth may call %s, want %s", peers, want)
		}
	}
	for _, o := range objects {
		if o.kind() == "Service" && o.at("spec", "ipFamilyPolicy") != "PreferDualStack" {
			t.Errorf("the Service %s has the family policy %v, want PreferDualStack", o.name(), o.at("spec", "ipFamilyPolicy"))
		}
	}
	if got := environment(objects, "links")["LINKREEL_TRUSTED_PROXIES"]; !strings.Contains(got, "10.0.0.0/8") || !strings.Contains(got, "fc00::/7") {
		t.Errorf("the trusted networks are %s, want the private networks of both families", got)
	}
}

// OpenShift assigns users and groups to pods on admission, and rejects pods that set different
// ones.
func TestOpenShift(t *testing.T) {
	t.Parallel()
	objects, err := render(t, "--values", filepath.Join(chart, "ci/openshift.yaml"), "--set", "worker.securityContext.procMount=Default,worker.podSecurityContext.supplementalGroups={7}")
	if err != nil {
		t.Fatal(err)
	}
	all := pods(objects)
	if len(all) < 9 {
		t.Fatalf("the chart renders only %d pods, want at least 9", len(all))
	}
	for _, p := range all {
		text, err := json.Marshal(p.spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, fixed := range []string{`"runAsUser"`, `"runAsGroup"`, `"fsGroup"`} {
			if strings.Contains(string(text), fixed) {
				t.Errorf("%s has a fixed %s: %v", p.owner, fixed, p.spec["securityContext"])
			}
		}
		own := p.component() == "worker"
		if (p.spec.at("securityContext", "supplementalGroups") != nil) != own || (p.containers[0].at("securityContext", "procMount") != nil) != own {
			t.Errorf("%s has the security contexts %v and %v, want them only for the worker", p.owner, p.spec["securityContext"], p.containers[0]["securityContext"])
		}
	}
	// OpenShift's resolvers listen on port 5353, and a NetworkPolicy applies to the pod's port.
	for _, service := range []string{"auth", "console", "events", "links", "videos", "worker", "localcloud"} {
		if !slices.ContainsFunc(egress(t, objects, service), func(rule string) bool { return strings.HasPrefix(rule, "5353/UDP ") }) {
			t.Errorf("%s is not allowed to call resolvers on port 5353", service)
		}
	}
}

// Amazon's load balancer sends GET / as a health check to each port that it forwards requests to.
func TestEKS(t *testing.T) {
	t.Parallel()
	objects, err := render(t, "--values", filepath.Join(chart, "ci/eks.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got := environment(objects, "links")["LINKREEL_TRUSTED_PROXY_HOPS"]; got != "1" {
		t.Errorf("links trusts %q hops, want 1 because the load balancer appends one address", got)
	}
	for _, o := range objects {
		if o.kind() == "Ingress" {
			annotations := mapAt(o, "metadata", "annotations")
			if o.at("spec", "ingressClassName") != "alb" || annotations["alb.ingress.kubernetes.io/target-type"] != "ip" {
				t.Errorf("the Ingress has the class %v and the annotations %v, want alb and the target type ip", o.at("spec", "ingressClassName"), annotations)
			}
			return
		}
	}
	t.Error("the chart does not render an Ingress")
}
