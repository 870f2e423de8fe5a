// Up to six runs: paired differences of the others from a baseline.

import { count, html, link, Loaded, percent, probability, useData, useMemo, useQuery, useTitle, words } from '../base.js'
import { Figure } from '../figures.js'
import { Swatch } from '../numbers.js'
import { forest } from '../plots.js'
import * as source from '../source.js'
import { falseDiscoveryRates } from '../statistics.js'
import { Bar, Table } from '../tables.js'
import { Fold, Report } from './report.js'
import { MOST_COMPARED } from './runs.js'

const MOST_PLOTTED = 60

export default function Compare({ baseline, others = '', parameters }) {
  const slugs = [...new Set([baseline, ...others.split(',')].filter(Boolean))]
  const state = useData(() => comparison(slugs), [slugs.join('~')])
  useTitle(state.value ? `${state.value.names.slice(1).join(', ')} against ${state.value.names[0]}` : 'Comparison')
  if (slugs.length < 2 || slugs.length > MOST_COMPARED) return html`<h1>Comparison</h1><p class="problem" role="alert">A comparison needs two to six runs. <a href=${link([''], { chosen: slugs.slice(0, MOST_COMPARED).join(',') })}>Choose them.</a></p>`
  return html`
    <p class="crumbs"><a href="#/">Runs</a> / comparison</p>
    <h1>Comparison</h1>
    <${Loaded} state=${state} what="the differences">${({ names, pairs }) => html`
      <${Who} slugs=${slugs} names=${names} />
      <${Differences} slugs=${slugs} names=${names} pairs=${pairs} parameters=${parameters} />
      <${WholeReport} slugs=${slugs} parameters=${parameters} />`}<//>`
}

// The labels of runs, and the differences of each from the first.
async function comparison(slugs) {
  const kinds = new Set((await source.runs()).runs.filter(({ slug }) => slugs.includes(slug)).map(({ kind }) => kind))
  if (kinds.size > 1) throw new Error(`The runs are of ${[...kinds].join(' and ')}: choose runs of one kind, which have tasks in common.`)
  const [runs, { metrics = {} }, pairs] = await Promise.all([
    Promise.all(slugs.map(source.run)),
    source.config(slugs[0]),
    Promise.all(slugs.slice(1).map(slug => source.pair(slugs[0], slug))),
  ])
  const tasks = Object.assign({}, ...runs.map(run => Object.fromEntries(Object.entries(run.tasks).map(([task, { label }]) => [task, label]))))
  const labelled = (row, rows) => ({
    ...row,
    label: isSkill(row.task) ? words(row.task.slice(1)) : tasks[row.task] ?? row.task,
    // The table of examples has right and wrong under this metric.
    isHeadline: !isSkill(row.task) && row.metric === (metrics[row.task]?.headline ?? rows.find(({ task }) => task === row.task).metric),
  })
  return { names: runs.map(({ label }) => label), pairs: pairs.map(pair => ({ ...pair, rows: pair.rows.map(row => labelled(row, pair.rows)) })) }
}

function Who({ slugs, names }) {
  const others = slugs.slice(1)
  const against = slug => link(['compare', slug, slugs.filter(one => one !== slug).join(',')])
  return html`<ul class="who">${slugs.map((slug, place) => html`<li><${Swatch} run=${place} /> <a href=${link(['run', slug])}>${names[place]}</a>
    ${place ? html` <a class="small" href=${against(slug)}>make it the baseline</a>` : html` <span class="muted">baseline</span>`}
    ${place > 0 && others.length > 1 && html` <a class="small" href=${link(['compare', slugs[0], others.filter(one => one !== slug).join(',')])} aria-label=${`Leave out ${names[place]}`}>leave out</a>`}</li>`)}
    ${slugs.length < MOST_COMPARED && html`<li><a class="small" href=${link([''], { chosen: slugs.join(',') })}>choose other runs</a></li>`}</ul>`
}

function Differences({ slugs, names, pairs, parameters }) {
  const [query, change] = useQuery(['compare', slugs[0], slugs.slice(1).join(',')], parameters)
  const all = useMemo(() => pairs.flatMap(({ rows }, place) => rows.map(row => ({ ...row, run: place + 1 }))), [pairs])
  const { task, q, groups, skills } = query
  const rows = useMemo(() => withMarks(inTurn(all.filter(row => isWanted(row, query))), pairs[0]), [all, task, q, groups, skills])
  const tasks = [...new Set(all.map(row => row.task))]
  const notes = [...new Set(pairs.flatMap(pair => pair.notes))]
  const columns = useMemo(() => columnsOf(slugs, names, rows, pairs[0]), [slugs.join(), rows])
  return html`
    <h2>Paired differences</h2>
    <p class="intro">Percentage points by which a run is better than ${names[0]}, over the examples that both have answered. Each interval by itself holds the true difference in 95% of the cases. The adjusted p-value (Benjamini and Hochberg) counts the rows that the table shows: choose them before you look at it.</p>
    <search class="filters">
      <label>Filter <input type="search" value=${q ?? ''} placeholder="task, sub-task or metric" onInput=${event => change({ q: event.target.value })} /></label>
      <label>Task <select value=${task ?? ''} onChange=${event => change({ task: event.target.value })}><option value="">all</option>${tasks.filter(one => !isSkill(one)).map(one => html`<option value=${one}>${all.find(row => row.task === one).label}</option>`)}</select></label>
      ${all.some(row => row.group) && html`<label class="tick"><input type="checkbox" checked=${groups === '1'} onChange=${event => change({ groups: event.target.checked ? '1' : '' })} /> Sub-tasks</label>`}
      ${tasks.some(isSkill) && html`<label class="tick"><input type="checkbox" checked=${skills !== '0'} onChange=${event => change({ skills: event.target.checked ? '' : '0' })} /> Skills</label>`}
    </search>
    ${notes.length > 0 && html`<ul class="notes">${notes.map(note => html`<li>${note}</li>`)}</ul>`}
    ${rows.length > 0 && html`<${Said} rows=${rows} pair=${pairs[0]} />`}
    ${rows.length > 0 && html`<${Forest} rows=${rows} baseline=${names[0]} />`}
    <${Table} caption=${`Differences from ${names[0]}`} isQuiet name="differences" rows=${rows} columns=${columns} rowKey=${row => [row.task, row.group, row.metric, row.run].join('/')} rowClass=${row => row.isClear && 'clear'} empty=${all.length ? 'No row matches the filter.' : 'The runs have no task in common.'} />`
}

const isSkill = task => task.startsWith('@')

function isWanted(row, { task, q, groups, skills }) {
  if (task && row.task !== task) return false
  if (row.group && groups !== '1') return false
  if (isSkill(row.task) && skills === '0') return false
  return !q || [row.label, row.task, row.group, row.metric].join(' ').toLowerCase().includes(q.toLowerCase())
}

// Rows of the same measure follow each other, in the order of the first run that has them.
function inTurn(rows) {
  const places = new Map()
  for (const row of rows) {
    const key = [row.task, row.group, row.metric].join('/')
    if (!places.has(key)) places.set(key, places.size)
    row.place = places.get(key)
  }
  return [...rows].sort((one, other) => one.place - other.place || one.run - other.run)
}

function withMarks(rows, { clear_below: clearBelow, few_clusters: fewClusters }) {
  const adjusted = falseDiscoveryRates(rows.map(({ p }) => p))
  return rows.map((row, place) => {
    const isClear = adjusted[place] <= clearBelow && row.clusters >= fewClusters
    const excludesZero = row.low > 0 || row.high < 0
    const mark = isClear ? '●' : excludesZero ? '○' : ''
    return { ...row, adjusted: adjusted[place], isClear, excludesZero, mark: mark && row.lacks_noise ? `${mark} ‡` : mark }
  })
}

function Said({ rows, pair }) {
  const clear = rows.filter(({ isClear }) => isClear).length
  const what = pair.is_text ? 'pairs' : 'images'
  return html`<p class="clear-said" role="status"><b>${count(clear)} of ${count(rows.length)}</b> ${rows.length === 1 ? 'difference is' : 'differences are'} clear.${' '}
    <small>● clear: p, adjusted for ${rows.length === 1 ? 'this difference' : `these ${count(rows.length)} differences`}, is at most ${percent(pair.clear_below, 0)}%, and the runs differ on at least ${pair.few_clusters} independent ${what}. ○ the interval excludes 0, but the difference is not clear.${rows.some(({ mark }) => mark.includes('‡')) && ' ‡ the interval lacks the noise of the samples.'}</small></p>`
}

const signed = value => percent(value, 1, true)
const measureOf = ({ label, group, metric }) => [label, group && words(group), metric !== 'accuracy' && words(metric)].filter(Boolean).join(', ')

function columnsOf(slugs, names, rows, pair) {
  const widest = Math.max(0.01, ...rows.flatMap(({ low, high }) => [Math.abs(low), Math.abs(high)]))
  const flips = (row, way) => link(['flips', slugs[0], slugs[row.run]], { task: row.task, group: row.group, way })
  const alone = (row, value, way) => (row.isHeadline && value ? html`<a href=${flips(row, way)}>${count(value)}</a>` : count(value))
  return [
    {
      key: 'task',
      label: 'task and metric',
      text: row => (isSkill(row.task) ? `skill: ${measureOf(row)}` : measureOf(row)),
      value: row => row.task,
      cell: row => html`<${Name} row=${row} to=${flips(row)} />`,
      parts: { metric: row => row.metric, group: row => row.group, baseline: () => names[0], ...(names.length < 3 && { run: () => names[1] }) },
      style: 'name',
    },
    ...(names.length > 2 ? [{ key: 'run', label: 'run', value: row => names[row.run], style: 'run-name', cell: row => html`<${Swatch} run=${row.run} /> ${names[row.run]}` }] : []),
    { key: 'difference', label: 'difference', isNumber: true, value: row => row.difference, text: row => `${signed(row.difference)} ${row.mark}`.trim(), cell: row => html`<b>${signed(row.difference)}</b> <span class="mark">${row.mark}</span>`, parts: { low: row => row.low, high: row => row.high } },
    { key: 'interval', label: '95% interval', isNumber: true, isForReading: true, value: row => row.high - row.low, text: row => `${signed(row.low)} to ${signed(row.high)}`, help: 'Sorts by width' },
    { key: 'bar', label: 'Interval', isFixed: true, cell: row => html`<${Bar} value=${row.difference} low=${row.low} high=${row.high} chance=${0} from=${-widest} to=${widest} run=${row.run} />` },
    { key: 'baseline_value', label: 'baseline', help: names[0], isNumber: true, value: row => row.first, text: row => percent(row.first) },
    { key: 'run_value', label: names.length > 2 ? 'value' : names[1], heading: names.length > 2 ? 'value' : 'run', isNumber: true, value: row => row.second, text: row => percent(row.second) },
    { key: 'p', label: 'p', isNumber: true, value: row => row.p, text: row => probability(row.p), help: 'Two-sided, of no difference' },
    { key: 'p_adjusted', label: 'adjusted p', heading: html`adjusted<br />p`, isNumber: true, value: row => row.adjusted, text: row => probability(row.adjusted), help: 'Benjamini and Hochberg, over the rows that the table shows', parts: { clear: row => row.isClear } },
    { key: 'only_second', label: 'only run', heading: html`only<br />run`, isNumber: true, value: row => row.only_second, cell: row => alone(row, row.only_second, 'second'), help: 'Examples that the run alone has right' },
    { key: 'only_first', label: 'only baseline', heading: html`only<br />baseline`, isNumber: true, value: row => row.only_first, cell: row => alone(row, row.only_first, 'first'), help: `Examples that ${names[0]} alone has right` },
    { key: 'n', label: 'n', isNumber: true, value: row => row.n, text: row => count(row.n), help: 'Examples that both have answered' },
    { key: 'clusters', label: pair.is_text ? 'pairs apart' : 'images apart', heading: html`${pair.is_text ? 'pairs' : 'images'}<br />apart`, isNumber: true, value: row => row.clusters, text: row => count(row.clusters), help: `Independent ${pair.is_text ? 'pairs' : 'images'} on which the runs differ` },
  ]
}

function Name({ row, to }) {
  if (isSkill(row.task)) return html`${row.label} <small>skill, ${words(row.metric)}</small>`
  const said = row.group ? words(row.group) : row.label
  return html`${row.isHeadline ? html`<a href=${to}>${said}</a>` : said} <small>${[row.group && row.label, words(row.metric)].filter(Boolean).join(', ')}</small>`
}

function Forest({ rows, baseline }) {
  const shown = rows.slice(0, MOST_PLOTTED)
  const said = rows.length > shown.length ? ` (the first ${shown.length} of ${count(rows.length)} rows)` : ''
  const make = () => forest(shown.map(row => ({ name: measureOf(row), run: row.run, value: 100 * row.difference, low: 100 * row.low, high: 100 * row.high, isHollow: !row.isClear })), `Differences from ${baseline}`)
  return html`<${Figure} title=${`Difference from ${baseline} in percentage points, 95% interval; filled where it is clear${said}`} name="differences-plot" keys=${[rows]} width=${860} make=${make} />`
}

function WholeReport({ slugs, parameters }) {
  const address = section => link(['compare', slugs[0], slugs.slice(1).join(',')], { ...parameters, section })
  return html`<${Fold} title="The whole report on these runs" names="radar, overlap, samples, timesteps, gallery" isOpen=${Boolean(parameters.section)}>${() => html`<${Report} slugs=${slugs} contents=${address} section=${parameters.section} />`}<//>`
}
