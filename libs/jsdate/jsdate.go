// Package jsdate parses points in time as JavaScript's Date constructor does in V8. It tries
// ECMAScript's ISO format first, and then V8's older, lenient grammar ("Nov 20, 2026 5:00 PM
// GMT+1"). Callers send strings that work with `new Date(x)` in their programs, so this package
// must return the same results for the same strings, even surprising ones: "2026-02-30" is the
// second of March, "Nov 20" is in 2001, and "1790000000000" as a string is not a date.
//
// There is one difference: for a date without a time zone, JavaScript uses the machine's zone, but
// this package uses UTC.
package jsdate

import (
	"math"
	"unicode"
	"unicode/utf8"
)

// Max is the largest number of milliseconds before or after 1970 in a JavaScript date.
const Max = 8_640_000_000_000_000

// Parse is equivalent to Date.parse with TZ=UTC. It returns milliseconds since 1970, or false if
// JavaScript returns NaN.
func Parse(s string) (ms int64, ok bool) {
	p := parser{lex: lexer{src: s}}
	p.lex.advance()
	p.tok = p.lex.scan()
	return p.date()
}

// FromNumber is equivalent to new Date(n). Fractions are truncated towards zero. Numbers outside
// ±[Max], NaN and infinities are not dates.
func FromNumber(n float64) (ms int64, ok bool) {
	if math.IsNaN(n) || math.Abs(n) > Max {
		return 0, false
	}
	return int64(n), true
}

// kind is the kind of a token.
type kind uint8

const (
	end    kind = iota
	number      // a run of digits
	word        // a run of characters from 'A' upwards in Unicode
	symbol      // one of : - + . )
	space       // a run of white space
	other       // a parenthesised remark or any other character
)

// meaning is the part of a date that a word stands for.
type meaning uint8

const (
	noise meaning = iota
	month
	halfDay // am, pm
	zone
	timeMark // the T of ISO
)

type token struct {
	kind   kind
	length int // in characters, leading zeros included
	n      int // a number's value, a word's value, or a symbol's character

	means meaning
}

func (t token) is(r rune) bool       { return t.kind == symbol && t.n == int(r) }
func (t token) sign() bool           { return t.is('+') || t.is('-') }
func (t token) digits(n int) bool    { return t.kind == number && t.length == n }
func (t token) utcMark() bool        { return t.kind == word && t.means == zone && t.length == 1 }
func (t token) pair(lo, hi int) bool { return t.digits(2) && within(t.n, lo, hi) }

func within(n, lo, hi int) bool { return lo <= n && n <= hi }

// lexer splits the text into tokens. A NUL ends the text.
type lexer struct {
	src  string
	next int  // offset just after r
	r    rune // current character, 0 at the end
}

func (l *lexer) advance() {
	if l.next >= len(l.src) {
		l.r = 0
		return
	}
	r, size := utf8.DecodeRuneInString(l.src[l.next:])
	l.r = r
	l.next += size
}

func (l *lexer) scan() token {
	switch r := l.r; {
	case r == 0:
		return token{kind: end}
	case isDigit(r):
		return l.number()
	case r == ':' || r == '-' || r == '+' || r == '.' || r == ')':
		l.advance()
		return token{kind: symbol, length: 1, n: int(r)}
	case isSpace(r):
		for isSpace(l.r) {
			l.advance()
		}
		return token{kind: space}
	case r >= 'A':
		return l.word()
	case r == '(':
		l.remark()
	default:
		l.advance()
	}
	return token{kind: other}
}

// significant is the number of digits used from a number, not counting leading zeros. Further
// digits are ignored.
const significant = 9

func (l *lexer) number() token {
	t := token{kind: number}
	for ; l.r == '0'; l.advance() {
		t.length++
	}
	for seen := 0; isDigit(l.r); l.advance() {
		if seen < significant {
			t.n = t.n*10 + int(l.r-'0')
		}
		seen++
		t.length++
	}
	return t
}

// word reads a word. Its first three characters determine its meaning.
func (l *lexer) word() token {
	var head [3]rune
	t := token{kind: word}
	for ; l.r >= 'A' && !isSpace(l.r); l.advance() {
		if t.length < len(head) {
			head[t.length] = l.r | 0x20
		}
		t.length++
	}
	if k, ok := keywords[head]; ok && (t.length <= len(head) || k.means == month) {
		t.means, t.n = k.means, k.value
	}
	return t
}

// remark skips a parenthesised remark, including nested remarks. An unclosed remark extends to the
// end of the text.
func (l *lexer) remark() {
	for depth := 0; l.r != 0; {
		switch l.r {
		case '(':
			depth++
		case ')':
			depth--
		}
		l.advance()
		if depth == 0 {
			return
		}
	}
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

// isSpace reports whether r is white space as ECMAScript defines it. U+2028 and U+2029 are
// exceptions: they count as letters.
func isSpace(r rune) bool {
	switch r {
	case ' ', '\t', '\n', '\v', '\f', '\r', 0xA0, 0xFEFF:
		return true
	}
	return r > 0xFF && unicode.Is(unicode.Zs, r)
}

type keyword struct {
	means meaning
	value int // month 1 to 12, hours to add, or hours from UTC
}

var keywords = func() map[[3]rune]keyword {
	m := map[[3]rune]keyword{}
	add := func(s string, k keyword) {
		var key [3]rune
		for i, r := range s {
			key[i] = r
		}
		m[key] = k
	}
	for i, s := range []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"} {
		add(s, keyword{month, i + 1})
	}
	add("am", keyword{halfDay, 0})
	add("pm", keyword{halfDay, 12})
	add("t", keyword{timeMark, 0})
	for s, hours := range map[string]int{
		"z": 0, "ut": 0, "utc": 0, "gmt": 0,
		"edt": -4, "est": -5, "cdt": -5, "cst": -6, "mdt": -6, "mst": -7, "pdt": -7, "pst": -8,
	} {
		add(s, keyword{zone, hours})
	}
	return m
}()

// parser collects the parts of one date. It reads the tokens with one token of
// look-ahead.
type parser struct {
	lex lexer
	tok token // not yet consumed

	day   []int // bare numbers in order of appearance: year, month, day in some order
	named int   // month given by name, 0 if none
	iso   bool

	time     []int // hour, minute, second, millisecond
	half     int   // hours that am or pm adds
	halfSeen bool

	zone offset
}

// offset is a UTC offset. It records whether hours and minutes were given because minutes may
// follow "GMT+5", but not "Z".
type offset struct {
	sign              int
	hours, mins       int
	hasHours, hasMins bool
}

func (o *offset) setHours(n int)   { o.hours, o.hasHours = n, true }
func (o *offset) setMinutes(n int) { o.mins, o.hasMins = n, true }
func (o *offset) utc() bool        { return o.hasHours && o.hasMins && o.hours == 0 && o.mins == 0 }
func (o *offset) wants(n int) bool { return o.hasHours && !o.hasMins && within(n, 0, 59) }

// set sets the offset to a named zone's.
func (o *offset) set(hours int) {
	o.sign = 1
	if hours < 0 {
		o.sign = -1
	}
	o.setHours(hours * o.sign)
	o.setMinutes(0)
}

func (p *parser) take() token {
	t := p.tok
	p.tok = p.lex.scan()
	return t
}

func (p *parser) skip(r rune) bool {
	if !p.tok.is(r) {
		return false
	}
	p.take()
	return true
}

func (p *parser) date() (int64, bool) {
	rest, ok := p.isoDate()
	if !ok || !p.legacy(rest) {
		return 0, false
	}
	return p.instant()
}

// isoDate reads ECMAScript's format. It returns the first token for the lenient grammar, or an
// end token if all tokens were read. The collected parts are kept. After a T there is no fallback:
// if the rest is invalid, the text is not a date.
func (p *parser) isoDate() (rest token, ok bool) {
	switch {
	case p.tok.sign():
		sign := p.take()
		if !p.tok.digits(6) {
			return sign, true
		}
		year := p.take().n
		if sign.is('-') {
			if year == 0 {
				return sign, true // the year -0 is invalid
			}
			year = -year
		}
		p.day = append(p.day, year)
	case p.tok.digits(4):
		p.day = append(p.day, p.take().n)
	default:
		return p.take(), true
	}
	for _, last := range []int{12, 31} { // month, day
		if !p.skip('-') {
			break
		}
		if !p.tok.pair(1, last) {
			return p.take(), true
		}
		p.day = append(p.day, p.take().n)
	}
	if p.tok.kind == word && p.tok.means == timeMark {
		p.take()
		if !p.isoTime() || !p.isoZone() || p.tok.kind != end {
			return token{}, false
		}
	} else if p.tok.kind != end {
		return p.take(), true
	}
	p.iso = true
	return token{kind: end}, true
}

// isoTime reads hh:mm[:ss[.s…]]. The hour can be 24 only if all parts after it are zero.
func (p *parser) isoTime() bool {
	if !p.tok.pair(0, 24) {
		return false
	}
	hour := p.take().n
	top := 59
	if hour == 24 {
		top = 0
	}
	p.time = append(p.time, hour)
	if !p.skip(':') || !p.tok.pair(0, top) {
		return false
	}
	p.time = append(p.time, p.take().n)
	if !p.skip(':') {
		return true
	}
	if !p.tok.pair(0, top) {
		return false
	}
	p.time = append(p.time, p.take().n)
	if !p.skip('.') {
		return true
	}
	if p.tok.kind != number || (hour == 24 && p.tok.n > 0) {
		return false
	}
	p.time = append(p.time, milliseconds(p.take()))
	return true
}

// isoZone reads Z, ±hh:mm, the common ±hhmm, or nothing.
func (p *parser) isoZone() bool {
	if p.tok.utcMark() {
		p.take()
		p.zone.set(0)
		return true
	}
	if !p.tok.sign() {
		return true
	}
	p.zone.sign = signOf(p.take())
	if p.tok.digits(4) {
		hhmm := p.take().n
		p.zone.setHours(hhmm / 100)
		p.zone.setMinutes(hhmm % 100)
		return p.zone.hours <= 23 && p.zone.mins <= 59
	}
	if !p.tok.pair(0, 23) {
		return false
	}
	p.zone.setHours(p.take().n)
	if !p.skip(':') || !p.tok.pair(0, 59) {
		return false
	}
	p.zone.setMinutes(p.take().n)
	return true
}

func signOf(t token) int {
	if t.is('-') {
		return -1
	}
	return 1
}

// milliseconds reads the digits after a decimal point as milliseconds and drops finer digits. A
// number has only nine significant digits, so digits beyond the ninth are ignored. With leading
// zeros, this gives the same odd values as V8.
func milliseconds(t token) int {
	n := t.n
	for i := t.length; i < 3; i++ {
		n *= 10
	}
	for i := min(t.length, significant); i > 3; i-- {
		n /= 10
	}
	return n
}

// legacy parses t and the rest of the text with the lenient grammar.
func (p *parser) legacy(t token) bool {
	anyNumber := len(p.day) > 0
	for ; t.kind != end; t = p.take() {
		switch {
		case t.kind == number:
			anyNumber = true
			if !p.legacyNumber(t.n) {
				return false
			}
		case t.kind == word:
			if !p.legacyWord(t, anyNumber) {
				return false
			}
		case t.sign() && (p.zone.utc() || len(p.time) > 0):
			anyNumber = true
			if !p.legacyOffset(t) {
				return false
			}
		case (t.sign() || t.is(')')) && anyNumber:
			return false
		}
	}
	return true
}

// legacyNumber decides which part of the date n is, depending on the next token and on the missing
// parts.
func (p *parser) legacyNumber(n int) bool {
	switch {
	case p.tok.is(':'):
		p.take()
		if p.skip(':') { // hours::seconds, without minutes
			if len(p.time) > 0 {
				return false
			}
			p.time = append(p.time, n, 0)
			return true
		}
		if len(p.time) == 4 {
			return false
		}
		p.time = append(p.time, n)
		p.skip('.')
		return true
	case p.skip('.') && p.timeWants(n):
		if p.time = append(p.time, n); p.tok.kind != number {
			return false
		}
		p.finishTime(milliseconds(p.take()))
		return true
	case p.zone.wants(n):
		p.zone.setMinutes(n)
		return true
	case p.timeWants(n):
		p.finishTime(n)
		return p.tok.kind == end || p.tok.kind == space || p.tok.utcMark() || p.tok.sign()
	case len(p.day) == 3:
		return false
	}
	p.day = append(p.day, n)
	p.skip('-')
	return true
}

// timeWants reports whether n can be the next part of a time that has begun.
func (p *parser) timeWants(n int) bool {
	switch len(p.time) {
	case 1, 2: // minutes, seconds
		return within(n, 0, 59)
	case 3: // milliseconds
		return within(n, 0, 999)
	}
	return false
}

// finishTime adds n as the last part of the time and sets the parts after it to zero.
func (p *parser) finishTime(n int) {
	if len(p.time) < 4 {
		p.time = append(p.time, n)
	}
	for len(p.time) < 4 {
		p.time = append(p.time, 0)
	}
}

func (p *parser) legacyWord(t token, anyNumber bool) bool {
	switch {
	case t.means == halfDay && len(p.time) > 0:
		p.half, p.halfSeen = t.n, true
	case t.means == month:
		p.named = t.n
		p.skip('-')
	case t.means == zone && anyNumber:
		p.zone.set(t.n)
	default:
		// Before the first number, words are ignored unless they are adjacent to it. After it,
		// words are an error.
		return !anyNumber && p.tok.kind != number
	}
	return true
}

// legacyOffset parses the offset after a sign that follows a time or UTC.
func (p *parser) legacyOffset(sign token) bool {
	p.zone.sign = signOf(sign)
	var n token
	if p.tok.kind == number {
		n = p.take()
	}
	switch {
	case p.tok.is(':'):
		p.zone.setHours(n.n)
		p.zone.mins, p.zone.hasMins = 0, false
	case n.length == 1 || n.length == 2:
		p.zone.setHours(n.n)
		p.zone.setMinutes(0)
	case n.length == 3 || n.length == 4:
		p.zone.setHours(n.n / 100)
		p.zone.setMinutes(n.n % 100)
	default:
		return false
	}
	return true
}

// instant converts the collected parts to milliseconds.
func (p *parser) instant() (int64, bool) {
	year, mon, day, ok := p.civil()
	if !ok {
		return 0, false
	}
	inDay, ok := p.inDay()
	if !ok {
		return 0, false
	}
	fromUTC, ok := p.zoneSeconds()
	if !ok {
		return 0, false
	}
	ms := daysBefore(year, mon)*86_400_000 + int64(day-1)*86_400_000 + inDay - fromUTC*1000
	if ms < -Max || ms > Max {
		return 0, false
	}
	return ms, true
}

// civil assigns the bare numbers to year, month and day. A missing day is 1, and a missing year is
// 2001 as in V8.
func (p *parser) civil() (year, mon, day int, ok bool) {
	if len(p.day) == 0 {
		return 0, 0, 0, false
	}
	c := [3]int{1, 1, 1}
	copy(c[:], p.day)
	dayFirst := within(c[0], 1, 31)
	switch {
	case p.named != 0 && dayFirst:
		year, mon, day = c[1], p.named, c[0]
	case p.named != 0:
		year, mon, day = c[0], p.named, c[1]
	case p.iso || !dayFirst:
		year, mon, day = c[0], c[1], c[2]
	default:
		year, mon, day = c[2], c[0], c[1]
	}
	if !p.iso {
		switch {
		case within(year, 0, 49):
			year += 2000
		case within(year, 50, 99):
			year += 1900
		}
	}
	// No date beyond the year 1,000,000 is a valid instant.
	return year, mon, day, within(mon, 1, 12) && within(day, 1, 31) && within(year, -1_000_000, 1_000_000)
}

// inDay returns the time of day in milliseconds since midnight; 24:00 is the end of the day.
func (p *parser) inDay() (int64, bool) {
	var c [4]int
	copy(c[:], p.time)
	if p.halfSeen {
		if !within(c[0], 0, 12) {
			return 0, false
		}
		c[0] = c[0]%12 + p.half
	}
	inRange := within(c[0], 0, 23) && within(c[1], 0, 59) && within(c[2], 0, 59) && within(c[3], 0, 999)
	if !inRange && c != [4]int{24, 0, 0, 0} {
		return 0, false
	}
	return ((int64(c[0])*60+int64(c[1]))*60+int64(c[2]))*1000 + int64(c[3]), true
}

// zoneSeconds returns the offset from UTC. As in V8, the offset wraps at 32 bits and must then fit
// into 31, so even "+999999999:00" gives the same result as in V8.
func (p *parser) zoneSeconds() (int64, bool) {
	if p.zone.sign == 0 {
		return 0, true
	}
	s := uint32(p.zone.hours)*3600 + uint32(p.zone.mins)*60
	return int64(p.zone.sign) * int64(s), s <= math.MaxInt32
}

// daysBefore returns the number of days from 1970 to the first day of a month. Like JavaScript, it
// extends the Gregorian calendar to all years.
func daysBefore(year, mon int) int64 {
	y := int64(year)
	if mon <= 2 {
		y--
	}
	era := y / 400
	if y < 0 {
		era = (y - 399) / 400
	}
	ofEra := y - era*400
	ofYear := int64((153*((mon+9)%12) + 2) / 5) // in this calculation, the year begins in March
	return era*146_097 + ofEra*365 + ofEra/4 - ofEra/100 + ofYear - 719_468
}
