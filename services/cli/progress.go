package cli

import (
	"fmt"
	"strings"
	"time"
)

// bar shows the progress of a long operation on one line, which it overwrites. Without a terminal, it
// shows nothing.
type bar struct {
	a     *app
	name  string
	total int64
	now   int64
	tail  string // text to show instead of bytes
	shown bool
	drawn time.Time
	speed float64 // bytes per second, smoothed
	last  time.Time
	lastN int64
}

func (a *app) bar(name string, total int64) *bar {
	now := a.env.Now()
	return &bar{a: a, name: name, total: total, last: now}
}

func (b *bar) on() bool { return b.a.env.Terminal && !b.a.quiet && b.total > 0 }

// set draws the bar, at most ten times per second.
func (b *bar) set(n int64) {
	now := b.a.env.Now()
	// The speed is measured over half a second and smoothed. Individual writes vary too much to
	// estimate the remaining time from.
	if d := now.Sub(b.last).Seconds(); d >= 0.5 {
		speed := max(0, float64(n-b.lastN)/d)
		if b.speed == 0 {
			b.speed = speed
		}
		b.speed += (speed - b.speed) * 0.3
		b.last, b.lastN = now, n
	}
	b.now = n
	if b.on() && (now.Sub(b.drawn) >= 100*time.Millisecond || n >= b.total) {
		b.drawn = now
		b.paint()
	}
}

// start sets the number of bytes that an earlier run transferred.
func (b *bar) start(n int64) { b.lastN, b.now = n, n }

func (b *bar) paint() {
	const width = 24
	share := min(1, float64(b.now)/float64(b.total))
	full := int(share * width)
	name := b.name
	if r := []rune(name); len(r) > 28 {
		name = "…" + string(r[len(r)-27:])
	}
	line := fmt.Sprintf("%-20s %s%s %3d %%", clean(name), strings.Repeat("█", full), strings.Repeat("░", width-full), int(share*100))
	switch {
	case b.tail != "":
		line += "  " + b.tail
	default:
		line += fmt.Sprintf("  %s/%s", size(b.now), size(b.total))
		if b.speed > 0 && b.now < b.total {
			line += fmt.Sprintf("  %s/s  %s left", size(int64(b.speed)), left(float64(b.total-b.now)/b.speed))
		}
	}
	fmt.Fprint(b.a.env.Err, "\r\x1b[2K"+line)
	b.shown = true
}

// clear erases the bar so that another line can be printed.
func (b *bar) clear() {
	if b.shown {
		fmt.Fprint(b.a.env.Err, "\r\x1b[2K")
		b.shown = false
	}
}

// end stops the bar and leaves its last state on the screen.
func (b *bar) end() {
	if b.shown {
		fmt.Fprintln(b.a.env.Err)
		b.shown = false
	}
}

func size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.0f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}

func left(seconds float64) string {
	s := int(min(seconds, 359999) + 0.5)
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
