// Package cluster contains the tests for Kubernetes. The Go tests check the chart without a
// cluster: its values, schema, README, alerts and rendered objects. The scripts start a real
// one-node Kubernetes on this machine (up.sh) and test the chart on it (test.sh). See README.md.
package cluster
