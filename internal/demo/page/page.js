'use strict'
const $ = id => document.getElementById(id)
const shown = 120 // seconds in the chart
let failed = 0

const put = (id, text) => { if ($(id).textContent !== text) $(id).textContent = text }
const count = n => n.toLocaleString('en-US')
const times = n => n === 1 ? 'once' : count(n) + ' times'
function time(s) {
  if (s < 0.00995) return (s * 1000).toFixed(1) + ' ms'
  if (s < 0.9995) return Math.round(s * 1000) + ' ms'
  return s < 99.5 ? s.toFixed(1) + ' s' : Math.round(s) + ' s'
}
const clock = s => Math.floor(s / 60) + ':' + String(Math.floor(s % 60)).padStart(2, '0')
const kindOf = fault => ({ 'kill -9': 'kill', freeze: 'freeze', wake: 'wake' }[fault] || 'cut')

// fill puts rows into the body of a table. A cell is a text or an element.
function fill(id, rows) {
  $(id).replaceChildren(...rows.map(cells => {
    const tr = document.createElement('tr')
    for (const [value, style] of cells) {
      const td = tr.appendChild(document.createElement('td'))
      td.className = style || ''
      td.append(value)
    }
    return tr
  }))
}

function link(url) {
  const a = document.createElement('a')
  a.href = url
  a.textContent = 'open'
  return a
}

function spot(text, style) {
  const e = document.createElement('span')
  e.className = style
  e.textContent = text
  return e
}

const states = { active: 'streams from the slot', standby: 'standby', frozen: 'frozen', '': 'starting' }

function verdict(s) {
  const last = s.strikes[s.strikes.length - 1]
  const wrong = s.lost + s.out_of_order + s.unexpected + s.duplicates
  const struck = 'killed ' + times(s.blows.killed) + ' · frozen ' + times(s.blows.frozen) + ' · connections cut ' + times(s.blows.cut)
  const found = 'lost ' + count(s.lost) + ' · out of order ' + count(s.out_of_order) + ' · duplicates ' + count(s.duplicates)
  put('why', struck + ' · ' + found)
  if (wrong) return ['bad', 'The records differ from the committed rows']
  if (last && last.fault !== 'wake' && !last.recovery) return ['warn', 'The relays recover: the demo ' + last.what.replace(/, process .*/, '')]
  return ['good', 'Each committed row has arrived once, in order']
}

const ns = 'http://www.w3.org/2000/svg'
function plot(s) {
  const points = s.points, rates = []
  for (let i = 1; i < points.length; i++) rates.push([points[i].at, Math.max(0, points[i].records - points[i - 1].records) / (points[i].at - points[i - 1].at)])
  const range = Math.min(shown, Math.max(20, s.elapsed)), from = s.elapsed - range
  const top = Math.max(10, ...rates.map(r => r[1])), power = 10 ** Math.floor(Math.log10(top))
  const max = [1, 2, 5, 10].map(f => f * power).find(v => v >= top)
  const x = at => (1000 * (at - from) / range).toFixed(1), y = v => (100 - 100 * v / max).toFixed(1)
  const visible = rates.filter(r => r[0] >= from)
  const line = visible.map((r, i) => (i ? 'L' : 'M') + x(r[0]) + ' ' + y(r[1])).join('')
  const paths = [['grid-line', 'M0 0H1000M0 50H1000M0 100H1000']]
  if (visible.length > 1) paths.push(['area', line + 'L' + x(visible[visible.length - 1][0]) + ' 100L' + x(visible[0][0]) + ' 100Z'], ['line', line])
  for (const k of s.strikes) if (k.fault !== 'wake' && k.at >= from) paths.push([kindOf(k.fault), 'M' + x(k.at) + ' 0V100'])
  $('plot').replaceChildren(...paths.map(([style, d]) => {
    const e = document.createElementNS(ns, 'path')
    e.setAttribute('class', style); e.setAttribute('d', d)
    return e
  }))
  put('top', count(max)); put('from', Math.round(range) + ' s ago')
}

function show(s) {
  const [level, title] = verdict(s)
  $('state').dataset.level = level
  put('verdict', title)
  document.title = (level === 'bad' ? '✘ ' : '') + 'outbox-cdc-demo · ' + title.toLowerCase()
  put('about', clock(s.elapsed) + (s.limit ? ' of ' + clock(s.limit) : '') + ' · two relays with one slot, which are killed, frozen and cut off')
  put('killed', count(s.blows.killed)); put('frozen', count(s.blows.frozen)); put('cut', count(s.blows.cut))
  for (const id of ['lost', 'out_of_order', 'duplicates']) { put(id, count(s[id])); $(id).classList.toggle('wrong', s[id] > 0) }
  for (const id of ['rows', 'records', 'in_flight', 'unexpected']) put(id, count(s[id]))
  fill('relays', s.relays.map(r => [[r.name], [spot(states[r.role], 'dot ' + r.role)], [String(r.pid), 'n num'], [link(r.url), 'n']]))
  fill('strikes', s.strikes.slice(-10).reverse().map(k => [[clock(k.at), 'n num'], [spot(k.what, 'key ' + kindOf(k.fault))], [k.recovery ? time(k.recovery) : k.fault === 'wake' ? '' : '…', 'n num'], [k.then]]))
  plot(s)
}

async function poll() {
  try {
    const answer = await fetch('state', { cache: 'no-store', signal: AbortSignal.timeout(5000) })
    show(await answer.json())
    failed = 0
  } catch (e) {
    if (++failed > 1) { $('state').dataset.level = ''; put('verdict', 'The demo has ended'); put('why', 'The terminal has the summary.') }
  }
  document.body.dataset.polls = Number(document.body.dataset.polls || 0) + 1
  setTimeout(poll, 1000)
}
poll()
