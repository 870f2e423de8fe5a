// Figures that are made here, and buttons that save them.

import { scored, signed } from './answers.js'
import { html, number, useEffect, useRef, useState } from './base.js'
import { saveFigure } from './saving.js'
import { Table } from './tables.js'

// Shows an element in a box, which the keyboard reaches where it scrolls.
function shownIn(box, element) {
  box.replaceChildren(element)
  if (box.scrollWidth > box.clientWidth) box.tabIndex = 0
  else box.removeAttribute('tabindex')
}

// A figure with its title, its numbers as a table, and buttons. make(width) returns an SVG element, or a promise of one;
// keys say when it is made anew. numbers: columns and rows of tables.js.
export function Figure({ title, name, make, keys, width, help, numbers }) {
  const box = useRef()
  const [wide, setWide] = useState(0)
  const [failed, setFailed] = useState(null)
  useEffect(() => {
    const watch = new ResizeObserver(([{ contentRect }]) => setWide(Math.round(contentRect.width)))
    if (make.length) watch.observe(box.current)
    return () => watch.disconnect()
  }, [])
  useEffect(() => {
    if (make.length && !wide) return
    let isCurrent = true
    Promise.resolve(wide).then(make).then(
      element => isCurrent && element && box.current && shownIn(box.current, element),
      error => isCurrent && setFailed(error),
    )
    return () => { isCurrent = false }
  }, [...keys, wide])
  const saved = kind => saveFigure(kind, box.current.querySelector('svg'), name)
  return html`<figure style=${width && `max-width: ${width}px`}>
    <figcaption>${title}</figcaption>
    ${help && html`<p class="figure-help">${help}</p>`}
    ${failed && html`<p class="problem" role="alert">${failed.message}</p>`}
    <div class="plot" role="group" aria-label=${title} ref=${box}></div>
    <p class="saves">${['svg', 'png'].map(kind => html`<button type="button" class="quiet" aria-label=${`Save ${title} as ${kind.toUpperCase()}`} onClick=${() => saved(kind)}>${kind.toUpperCase()}</button>`)}</p>
    ${numbers && html`<${Numbers} title=${title} name=${name} ...${numbers} />`}
  </figure>`
}

// The numbers of a figure, made when they are opened.
function Numbers({ title, name, columns, rows }) {
  const [isOpen, setOpen] = useState(false)
  return html`<details onToggle=${event => setOpen(event.currentTarget.open)}><summary>Numbers<span class="unseen"> of ${title}</span></summary>
    ${isOpen && html`<${Table} caption=${`${title}: numbers`} name=${name} columns=${columns} rows=${rows} />`}
  </details>`
}

let library
// Observable Plot, which is loaded when the first plot is made.
export function plotting() {
  library ??= (async () => {
    for (const file of ['d3/d3.min.js', 'plot/plot.umd.min.js']) await loaded(`vendor/${file}`)
    return globalThis.Plot
  })()
  return library
}

function loaded(address) {
  return new Promise((resolve, reject) => {
    const script = document.createElement('script')
    Object.assign(script, { src: address, onload: resolve, onerror: () => reject(new Error('The library of figures could not be loaded: reload the page.')) })
    document.head.append(script)
  })
}

// Figures of one question. A series is a candidate: { name, mark, values }, with a value or null a sample; mark is "right",
// "wrong" or "other" (neither compared nor right).

const COLOURS = { right: 'var(--right)', wrong: 'var(--wrong)', other: 'var(--both)' }
const ROW_HEIGHT = 34
const LEFT = 56

async function drawn(width, description, options) {
  const Plot = await plotting()
  const marks = options.marks(Plot)
  const figure = Plot.plot({
    width: Math.max(280, Math.min(width, 720)), height: 260, marginLeft: LEFT, marginRight: 16, marginTop: 24, marginBottom: 38,
    ariaLabel: description, ...options, marks, style: { background: 'none', color: 'var(--ink)', fontFamily: 'inherit', fontSize: '12px' },
  })
  figure.setAttribute('role', 'img')
  for (const part of figure.querySelectorAll('[aria-label]')) part.removeAttribute('aria-label')
  return figure
}

// The colours' meanings, in one line above the figure, so that saved files have it, too.
function legend(Plot, entries) {
  let offset = 0
  return entries.map(([mark, text]) => {
    const dx = offset
    offset += 7 * text.length + 18
    return Plot.text([`● ${text}`], { frameAnchor: 'top-left', textAnchor: 'start', dx: dx - LEFT + 4, dy: -24, fill: COLOURS[mark], fontWeight: 600 })
  })
}

const legendOf = (names, series) => (names ? [['right', names.right], ['wrong', names.wrong], ...(series.some(({ mark }) => mark === 'other') ? [['other', 'others']] : [])] : [])

const bySample = values => values.flatMap((value, sample) => (value === null ? [] : [{ sample, value }]))
const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length

function quantile(sorted, share) {
  const place = share * (sorted.length - 1)
  const low = Math.floor(place)
  return sorted[low] + (place - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low])
}

const tableOf = (columns, rows) => ({ columns: columns.map(([key, isText]) => ({ key, label: key, isNumber: !isText })), rows })

// The errors of the samples, a candidate a row. Lines join the errors that two candidates have under the same noise.
export function Strips({ series, name }) {
  const [first, second] = series
  const points = series.flatMap(({ name: candidate, mark, values }) => bySample(values).map(({ sample, value }) => ({ candidate, mark, sample: sample + 1, error: value })))
  const pairs = second ? first.values.flatMap((value, sample) => (value === null || second.values[sample] === null ? [] : [{ from: value, to: second.values[sample] }])) : []
  const means = series.map(({ name: candidate, mark, values }) => ({ candidate, mark, error: mean(values.filter(value => value !== null)) }))
  const lower = pairs.filter(({ from, to }) => from < to).length
  const description = `Error of each sample for ${series.length} candidates. ${means.map(({ candidate, error }) => `${candidate}: mean ${scored(error)}`).join('; ')}.`
  return html`<${Figure} title="Error of each sample" name=${`${name}-samples`} keys=${[series]} numbers=${tableOf([['candidate', true], ['sample'], ['error']], points)}
    help=${`A dot is one sample, a bar the mean. All candidates meet the same noise and timestep in a sample. ${second ? `Lines join the samples of ${first.name} and ${second.name}: ${first.name} has the lower error in ${lower} of ${pairs.length}.` : ''}`}
    make=${width => drawn(width, description, {
      height: 62 + ROW_HEIGHT * series.length,
      marginLeft: 12 + 7 * Math.max(...series.map(({ name: candidate }) => candidate.length)),
      x: { label: 'error', grid: true, ticks: width < 500 ? 4 : 8 },
      y: { label: null, domain: series.map(({ name: candidate }) => candidate) },
      marks: Plot => [
        Plot.link(pairs, { x1: 'from', x2: 'to', y1: () => first.name, y2: () => second.name, stroke: ({ from, to }) => COLOURS[from < to ? 'right' : 'wrong'], strokeOpacity: 0.3 }),
        Plot.dot(points, { x: 'error', y: 'candidate', r: 3.5, fill: ({ mark }) => COLOURS[mark], fillOpacity: 0.65 }),
        Plot.tickX(means, { x: 'error', y: 'candidate', stroke: ({ mark }) => COLOURS[mark], strokeWidth: 3, insetTop: 6, insetBottom: 6 }),
      ],
    })} />`
}

// By how much the right answer's score is ahead in each sample.
export function Differences({ values, names, name }) {
  const points = bySample(values).map(({ sample, value }) => ({ sample: sample + 1, difference: value }))
  const found = points.map(({ difference }) => difference)
  const middle = mean(found)
  const error = found.length > 1 ? Math.sqrt(found.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (found.length - 1) / found.length) : 0
  const ahead = found.filter(value => value > 0).length
  const description = `Score of ${names.right} minus that of ${names.wrong} in each of ${found.length} samples: positive in ${ahead}, mean ${signed(middle)}.`
  return html`<${Figure} title="Right minus best wrong, in each sample" name=${`${name}-differences`} keys=${[values]} numbers=${tableOf([['sample'], ['difference']], points)}
    help=${`The score of ${names.right} minus that of ${names.wrong}. Above 0, the sample speaks for the right answer: ${ahead} of ${found.length} do. The line is the mean, ${signed(middle)}; the band is one standard error, ${scored(error)}.`}
    make=${width => drawn(width, description, {
      x: { label: 'sample', ticks: Math.min(found.length, width < 500 ? 6 : 12), tickFormat: 'd', domain: [0.5, values.length + 0.5] },
      y: { label: 'difference of scores', grid: true, nice: true },
      marks: Plot => [
        Plot.rect([0], { x1: 0.5, x2: values.length + 0.5, y1: middle - error, y2: middle + error, fill: 'var(--both)', fillOpacity: 0.2 }),
        Plot.ruleY([0], { stroke: 'var(--muted)' }),
        Plot.ruleX(points, { x: 'sample', y1: 0, y2: 'difference', stroke: ({ difference }) => COLOURS[difference > 0 ? 'right' : 'wrong'], strokeOpacity: 0.4 }),
        Plot.dot(points, { x: 'sample', y: 'difference', r: 3.5, fill: ({ difference }) => COLOURS[difference > 0 ? 'right' : 'wrong'] }),
        Plot.ruleY([middle], { stroke: 'var(--ink)', strokeDasharray: '5 3' }),
      ],
    })} />`
}

// Bins of the timestep with about as many samples each, or the timesteps themselves where each has several samples.
function binned(values, timesteps) {
  const points = bySample(values).map(({ sample, value }) => ({ timestep: timesteps[sample], value })).sort((one, other) => one.timestep - other.timestep)
  const distinct = new Set(points.map(({ timestep }) => timestep)).size
  const bins = []
  if (points.length >= 3 * distinct) {
    for (const point of points) {
      if (bins.at(-1)?.[0].timestep !== point.timestep) bins.push([])
      bins.at(-1).push(point)
    }
  } else {
    const number = Math.max(1, Math.min(10, Math.floor(points.length / 4)))
    for (let bin = 0; bin < number; bin++) bins.push(points.slice(Math.round(bin * points.length / number), Math.round((bin + 1) * points.length / number)))
  }
  return bins.filter(bin => bin.length).map(bin => {
    const sorted = bin.map(({ value }) => value).sort((one, other) => one - other)
    return { timestep: mean(bin.map(({ timestep }) => timestep)), mean: mean(sorted), low: quantile(sorted, 0.25), high: quantile(sorted, 0.75), samples: bin.length }
  })
}

// Values against the timestep: mean and quartiles over the noise.
export function ByTimestep({ series, names, timesteps, title, label, zero, name }) {
  const lines = series.map(one => ({ ...one, bins: binned(one.values, timesteps).map(bin => ({ ...bin, candidate: one.name })) }))
  const points = series.flatMap(({ mark, values }) => bySample(values).map(({ sample, value }) => ({ mark, value, timestep: timesteps[sample] })))
  const description = `${title}. ${lines.map(({ name: candidate, bins }) => `${candidate}: ${bins.map(bin => `${scored(bin.mean)} near ${scored(bin.timestep)}`).join(', ')}`).join('; ')}.`
  return html`<${Figure} title=${title} name=${name} keys=${[series]} numbers=${tableOf([['candidate', true], ['timestep'], ['mean'], ['low'], ['high'], ['samples']], lines.flatMap(({ bins }) => bins))}
    help="A dot is one sample. Lines are means of neighbouring samples, and bands hold the middle half of them."
    make=${width => drawn(width, description, {
      x: { label: timesteps.every(value => value <= 1) ? 'noise level' : 'timestep', ticks: width < 500 ? 5 : 8 },
      y: { label, grid: true, nice: true },
      ...(names && { marginTop: 58, height: 294 }),
      marks: Plot => [
        ...legend(Plot, legendOf(names, series)),
        ...(zero ? [Plot.ruleY([0], { stroke: 'var(--muted)' })] : []),
        ...lines.map(({ bins, mark }) => Plot.areaY(bins, { x: 'timestep', y1: 'low', y2: 'high', fill: COLOURS[mark], fillOpacity: 0.15 })),
        Plot.dot(points, { x: 'timestep', y: 'value', r: 2.5, fill: ({ mark }) => COLOURS[mark], fillOpacity: 0.5 }),
        ...lines.map(({ bins, mark }, place) => Plot.lineY(bins, { x: 'timestep', y: 'mean', stroke: COLOURS[mark], strokeWidth: 2, strokeDasharray: place ? '6 3' : undefined })),
      ],
    })} />`
}

// The running means of how far wrong candidates are ahead of the right one.
export function Running({ series, names, name }) {
  const lines = series.map(({ name: candidate, mark, values }) => {
    let sum = 0
    return { mark, points: bySample(values).map(({ value }, place) => {
      sum += value
      return { candidate, samples: place + 1, ahead: sum / (place + 1) }
    }) }
  })
  const description = `Mean score minus that of the right candidate, by number of samples. ${lines.map(({ points }) => points.length && `${points.at(-1).candidate}: ${signed(points.at(-1).ahead)} at the end`).filter(Boolean).join('; ')}.`
  return html`<${Figure} title="Mean score as samples accumulate" name=${`${name}-running`} keys=${[series]} numbers=${tableOf([['candidate', true], ['samples'], ['ahead']], lines.flatMap(({ points }) => points))}
    help="The mean score of each wrong candidate over the first samples, minus that of the right one on the same samples. The answer is right where all lines are below 0."
    make=${width => drawn(width, description, {
      x: { label: 'samples', ticks: width < 500 ? 5 : 10, tickFormat: 'd' },
      y: { label: 'minus the right one', grid: true, nice: true },
      marginTop: 58, height: 294,
      marks: Plot => [
        ...legend(Plot, legendOf(names, series)),
        Plot.ruleY([0], { stroke: COLOURS.right, strokeWidth: 2 }),
        ...lines.map(({ points, mark }, place) => Plot.lineY(points, { x: 'samples', y: 'ahead', stroke: COLOURS[mark], strokeWidth: 2, strokeDasharray: place ? '6 3' : undefined, marker: points.length < 20 ? 'dot' : undefined })),
      ],
    })} />`
}

// How often so many samples, drawn at random, decide rightly.
export function Decisions({ shares, name }) {
  const points = shares.map(({ samples, share }) => ({ samples, percent: 100 * share }))
  const description = `Right decisions by number of samples: ${points.filter((_, place) => place === 0 || place === points.length - 1).map(({ samples, percent }) => `${number(percent, 0)}% with ${samples}`).join(', ')}.`
  return html`<${Figure} title="Right decisions by number of samples" name=${`${name}-decisions`} keys=${[shares]} numbers=${tableOf([['samples'], ['percent']], points)}
    help="Of 200 random subsets of this question's samples, the share that decides for the right answer. At the full number there is one subset only."
    make=${width => drawn(width, description, {
      x: { label: 'samples', ticks: width < 500 ? 5 : 10, tickFormat: 'd' },
      y: { label: 'right, %', grid: true, domain: [0, 100] },
      marks: Plot => [
        Plot.lineY(points, { x: 'samples', y: 'percent', stroke: COLOURS.right, strokeWidth: 2, marker: points.length < 40 ? 'dot' : undefined }),
      ],
    })} />`
}
