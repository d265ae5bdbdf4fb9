package delivery

import "slices"

// pool is a set of slots that accounts share. No account gets more than its share, and accounts
// with waiting lanes take turns. An account with many slow receivers therefore does not delay the
// others. The engine's mutex guards the pool.
type pool struct {
	free  int
	share int // the maximum number of slots for one account

	taken   map[string]int     // by account
	waiting map[string][]*lane // by account
	turns   []string           // the accounts with waiting lanes, in the order of their turns
}

func newPool(slots int) *pool {
	return &pool{free: slots, share: slots / accounts, taken: map[string]int{}, waiting: map[string][]*lane{}}
}

// take takes a slot for an account. It returns false if no slot is free or the account has used
// up its share.
func (p *pool) take(account string) bool {
	if p.free == 0 || p.taken[account] >= p.share {
		return false
	}
	p.free--
	p.taken[account]++
	return true
}

// give returns an account's slot.
func (p *pool) give(account string) {
	p.free++
	if p.taken[account]--; p.taken[account] == 0 {
		delete(p.taken, account)
	}
}

// wait queues a lane after its account's other lanes.
func (p *pool) wait(l *lane) {
	if len(p.waiting[l.account]) == 0 {
		p.turns = append(p.turns, l.account)
	}
	p.waiting[l.account] = append(p.waiting[l.account], l)
}

// next removes and returns the next lane, or nil if none of the lanes can start an attempt. It
// skips accounts that have used up their share. At any time, there are only a few such accounts.
func (p *pool) next() *lane {
	if p.free == 0 {
		return nil
	}
	i := slices.IndexFunc(p.turns, func(account string) bool { return p.taken[account] < p.share })
	if i < 0 {
		return nil
	}
	account := p.turns[i]
	p.turns = slices.Delete(p.turns, i, i+1)
	lanes := p.waiting[account]
	if len(lanes) == 1 {
		delete(p.waiting, account)
	} else {
		p.waiting[account] = lanes[1:]
		p.turns = append(p.turns, account)
	}
	return lanes[0]
}
