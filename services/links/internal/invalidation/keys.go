package invalidation

import (
	"strconv"
)

// The log contains keys of three kinds: link.SlugKey for a slug, the plain host name for a custom
// domain, and [AccountKey].

// AccountKey returns the key of an account. The three kinds never collide, because only a slug's
// key contains a bar and a host name contains no @.
func AccountKey(accountID string) string { return "@" + accountID }

// everything stands for all keys. It replaces a list of keys that has become too long.
const everything = "*"

// MaxPartitions limits the number of partitions. A flusher that looks for partitions from an
// earlier configuration checks up to this number.
const MaxPartitions = 64

// Prefix returns the common part of a partition's Redis keys. The braces are a hash tag, which
// makes a Redis Cluster keep all keys of a partition on one server. A script can only use keys on
// the same server.
func Prefix(part int) string {
	if part == 0 {
		return "{lr:links}:"
	}
	return "{lr:links:" + strconv.Itoa(part) + "}:"
}

// HeadKey returns the key of a hash: e = epoch, n = number of the last entry, s = size of the log
// in bytes, r = run ID of the server. The size of the click log (c) is stored there too.
func HeadKey(part int) string { return Prefix(part) + "inv:head" }

// LogKey returns the key of a stream: n-0 → k = keys, one per line, and "<" with the number of the
// previous entry.
func LogKey(part int) string { return Prefix(part) + "inv" }
