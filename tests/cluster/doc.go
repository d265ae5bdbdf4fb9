// Package cluster holds what is tested about running in Kubernetes. The Go tests
// here judge the chart as text: its values, schema, README, alerts and what it
// renders. The scripts beside them bring up a real one-node Kubernetes on this
// machine (up.sh) and try the chart there (test.sh); see README.md.
package cluster
