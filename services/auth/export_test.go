package auth

// EndAgainWithin is EndAgain with another patience.
var EndAgainWithin = endAgain
