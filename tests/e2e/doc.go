// Package e2e tells the product's stories over HTTP, as callers, visitors and
// viewers live them, against a whole stack in this process: real Redis, real
// ffmpeg, real Chromium, the embedded cloud. Every exchange with the API is
// checked against the API document. The process tests run the built program
// and kill it.
package e2e
