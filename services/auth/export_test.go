package auth

// EndAgainWithin is EndAgain with a configurable patience.
var EndAgainWithin = endAgain
