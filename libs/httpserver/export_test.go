package httpserver

// Framing is framing.
var Framing = framing
