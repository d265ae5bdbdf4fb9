// Package e2e tests complete workflows for API clients, visitors and viewers over HTTP. It runs a
// whole stack in this process with real Redis, real ffmpeg, real Chromium and the embedded cloud.
// It checks every API exchange against the API document. The process tests run the built program
// and kill it.
package e2e
