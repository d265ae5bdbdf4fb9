package httpserver

// Framing exposes framing to the tests.
var Framing = framing
