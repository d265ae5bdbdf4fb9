package store

import (
	"hash/fnv"
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

// stepFrom is 1 to 1000, by chance but the same for the same request.
func stepFrom(nonce string, move int) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(nonce + "/" + strconv.Itoa(move)))
	return 1 + int64(h.Sum32()%1000)
}
