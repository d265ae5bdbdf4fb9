// Writes queries.json.gz: odd destinations and queries, and what merging them gives by
// Node's URL and URLSearchParams. The only rules of our own are which names win.
//
//	node queries.mjs
import { writeFileSync } from 'node:fs'
import { gzipSync } from 'node:zlib'

// mulberry32: a small generator of pseudorandom numbers, so that the table is the same each time
let state = 20261126
const random = () => {
  state = (state + 0x6d2b79f5) | 0
  let t = Math.imul(state ^ (state >>> 15), 1 | state)
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296
}
const pick = list => list[Math.floor(random() * list.length)]

const utm = ['utm_source', 'utm_medium', 'utm_campaign', 'utm_term', 'utm_content']
const names = ['a', 'b', 'A', 'a b', 'a+b', 'a%20b', 'ü', '%C3%BC', '%25', '%2541', '', 'x[]', 'x%5B%5D', '__proto__', 'utm_id', 'UTM_SOURCE', '%zz', '%', 'a;b', "'", '"', '<', '>', '\u{1f600}', '%ff', ...utm, ...utm, 'utm%5Fsource']
const values = ['', '1', 'a=b', 'a+b', '%20', '%2520', 'ü', '%C3%BC', '%', '%f', '%ff', '?', '#x', 'a/b', "it's", '"', '<b>', '\\', '^`{|}', '\u{10ffff}', '%00', 'x'.repeat(40)]
const pieces = (most, hash) => {
  const out = []
  for (let n = Math.floor(random() * most); n > 0; n--) {
    let name = pick(names), value = pick(values)
    if (!hash) value = value.replace('#', '')
    out.push(pick([name + '=' + value, name + '=' + value, name + '=' + value, name, '', name + '=']))
  }
  return out.join('&')
}
const nameOf = piece => {
  const [first] = new URLSearchParams('=' === piece[0] ? piece : piece.split('=')[0] + '=').keys()
  return first ?? ''
}

const rows = []
while (rows.length < 2000) {
  const base = pick(['https://a.example/', 'https://a.example/x/y', 'http://b.example:8080/z?', 'https://ü.example/ä', 'https://a.example/p%20q'])
  const own = random() < 0.8 ? (base.endsWith('?') ? '' : '?') + pieces(8, false) : ''
  const fragment = random() < 0.3 ? pick(['#f', '#', '#a=b&c', '#?x', '#/route?q=1']) : ''
  const destination = new URL(base + own + fragment).href
  let query = pieces(8, false)
  if (rows.length % 100 === 0) query = Array.from({ length: 300 }, (_, i) => pick(names) + '=' + i).join('&') // about 2 to 3 kB
  if (rows.length === 1) query = 'long=' + 'y'.repeat(8000)

  const at = new URL(destination)
  const ownQuery = at.search.replace(/^\?/, '')
  const owner = ownQuery === '' ? [] : ownQuery.split('&')
  const visitor = query.split('&').filter(p => p !== '')
  const ownNames = new Set(owner.map(nameOf))
  const seen = new Set()
  const out = []
  for (const piece of owner) {
    const name = nameOf(piece)
    if (!utm.includes(name) || !visitor.some(p => nameOf(p) === name)) {
      out.push(piece)
    } else if (!seen.has(name)) {
      seen.add(name)
      out.push(...visitor.filter(p => nameOf(p) === name))
    }
  }
  out.push(...visitor.filter(p => !ownNames.has(nameOf(p))))
  let want = destination
  if (visitor.length > 0) {
    const merged = new URL(destination.split('#')[0].split('?')[0])
    merged.search = out.join('&')
    want = merged.href + (destination.includes('#') ? destination.slice(destination.indexOf('#')) : '')
  }
  rows.push([destination, query, want])
}
writeFileSync(new URL('queries.json.gz', import.meta.url), gzipSync(JSON.stringify(rows), { level: 9 }))
