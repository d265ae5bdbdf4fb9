// Package cluster holds the tests for Kubernetes. The Go tests here check the chart as
// text: its values, schema, README, alerts and rendered objects. The scripts beside them
// start a real one-node Kubernetes on this machine (up.sh) and test the chart there
// (test.sh); see README.md.
package cluster
