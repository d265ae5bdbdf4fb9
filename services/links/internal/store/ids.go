package store

import (
	"strconv"

	"github.com/linkreel/linkreel/libs/identity"
)

func linkID(account string, seq int64) string {
	return identity.IDFrom("lnk", account+"/"+strconv.FormatInt(seq, 10))
}

// domainID is the same for an account that claims a name again, so that slugs of
// deleted links on it stay in quarantine.
func domainID(account, hostname string) string {
	return identity.IDFrom("dom", account+"/"+hostname)
}

func slugFrom(nonce string, try, length int) string {
	return identity.SlugFrom(nonce+"/"+strconv.Itoa(try), length)
}
