package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// ServiceMonitor and PodMonitoring must select the "admin" port on all Services and pods in the
// release, and the NetworkPolicy must admit Prometheus.
func TestMetricsOfTheOwnStores(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args              []string
		localcloud, redis bool
	}{
		"by default":        {nil, true, false},
		"with the exporter": {[]string{"--set", "redis.exporter.enabled=true,metrics.podAnnotations.enabled=true"}, true, true},
		"an external Redis": {[]string{"--set", "redis.enabled=false,redis.external.url=redis://r:6379,redis.exporter.enabled=true"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := render(t, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			for component, want := range map[string]bool{"localcloud": tt.localcloud, "redis": tt.redis} {
				var container, service, policy bool
				for _, p := range pods(objects) {
					for _, c := range p.containers {
						for _, port := range listAt(c, "ports") {
							container = container || p.component() == component && port["name"] == "admin" && port["containerPort"] == 9090
						}
						if c["name"] == "exporter" && !strings.Contains(fmt.Sprint(c["image"]), "@sha256:") {
							t.Errorf("the exporter's image %v does not have a digest", c["image"])
						}
					}
				}
				for _, o := range objects {
					if o.name() != "try-linkreel-"+component {
						continue
					}
					for _, port := range listAt(o, "spec", "ports") {
						service = service || o.kind() == "Service" && port["name"] == "admin"
					}
					for _, rule := range listAt(o, "spec", "ingress") {
						policy = policy || o.kind() == "NetworkPolicy" && fmt.Sprint(listAt(rule, "ports")) == "[map[port:admin]]" && len(listAt(rule, "from")) > 0
					}
					annotated := strings.Contains(fmt.Sprint(o.at("spec", "template", "metadata", "annotations")), "prometheus.io/scrape:true")
					if marks := strings.Contains(fmt.Sprint(tt.args), "podAnnotations"); o.kind() == "StatefulSet" && annotated != marks {
						t.Errorf("the pods for %s have the annotations: %v, want %v", component, annotated, marks)
					}
				}
				if container != want || service != want || policy != want {
					t.Errorf("%s has the metrics port in its container: %v, its Service: %v, its policy: %v; want %v for all", component, container, service, policy, want)
				}
			}
		})
	}
}
