// Package e2e tests the product's stories over HTTP, from the view of callers, visitors
// and viewers. It runs a whole stack in this process: real Redis, real ffmpeg, real
// Chromium, the embedded cloud. Every exchange with the API is checked against the API
// document. The process tests run the built program and kill it.
package e2e
