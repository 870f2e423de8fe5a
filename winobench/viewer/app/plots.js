// Plots that are made here.

import { number } from './base.js'
import { plotting } from './figures.js'

const WIDEST = 860
const A_LINE = 22
const OF_SEVERAL = 12
const A_LETTER = 6.8

// Values with their intervals around 0. Points: { name, run (a number, for its colour), value, low, high, isHollow }.
// Several runs share the band of a name.
export async function forest(points, description) {
  const Plot = await plotting()
  const width = Math.min(WIDEST, document.querySelector('main').clientWidth)
  const names = [...new Set(points.map(({ name }) => name))]
  const runs = [...new Set(points.map(({ run }) => run))].sort()
  const several = runs.length > 1
  const letters = Math.min(Math.floor(width / 20), Math.max(...names.map(({ length }) => length)))
  // In the middle: the ends of names tell them apart.
  const cut = text => (text.length > letters ? `${text.slice(0, Math.ceil(letters / 2) - 1)}…${text.slice(-Math.floor(letters / 2))}` : text)
  const side = { domain: names, label: null, tickFormat: cut, tickSize: 0 }
  const axis = several ? { fy: 'name', y: 'run' } : { y: 'name' }
  const colour = ({ run }) => `var(--run-${run})`
  const plot = Plot.plot({
    width,
    height: 46 + names.length * (several ? OF_SEVERAL * runs.length + 8 : A_LINE),
    marginLeft: 16 + A_LETTER * letters,
    marginRight: 20,
    marginBottom: 34,
    style: { background: 'none', color: 'var(--ink)', fontFamily: 'inherit', fontSize: '12px' },
    x: { label: null, grid: true, nice: true, ticks: width / 90 },
    y: several ? { type: 'point', domain: runs, padding: 0.6, axis: null } : side,
    ...(several && { fy: { ...side, axis: 'left', padding: 0.15 } }),
    marks: [
      Plot.ruleX([0], { stroke: 'var(--muted)' }),
      Plot.ruleY(points, { ...axis, x1: 'low', x2: 'high', stroke: colour, strokeWidth: 2, strokeOpacity: 0.55 }),
      Plot.dot(points, { ...axis, x: 'value', fill: point => (point.isHollow ? 'var(--ground)' : colour(point)), stroke: colour, r: 4, strokeWidth: 1.6, title: point => `${point.name}: ${number(point.value)} (${number(point.low)} to ${number(point.high)})` }),
    ],
  })
  plot.setAttribute('role', 'img')
  for (const part of plot.querySelectorAll('[aria-label]')) part.removeAttribute('aria-label')
  plot.setAttribute('aria-label', description)
  return plot
}
