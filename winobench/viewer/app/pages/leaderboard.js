// All finished runs and tasks in one table.

import { count, html, link, Loaded, Moment, useData, useMemo, useQuery, useTitle, words } from '../base.js'
import { intervalText, isShare, numberText } from '../numbers.js'
import * as source from '../source.js'
import { beforeInRanking, largestSet, ranks } from '../statistics.js'
import { Bar, Table } from '../tables.js'
import { MOST_COMPARED } from './runs.js'

const A_PAGE = 100
const MOST_TASKS = 6

export default function Leaderboard({ parameters }) {
  useTitle('Leaderboard')
  const state = useData(source.leaderboard, [])
  return html`<h1>Leaderboard</h1><${Loaded} state=${state} what="the results">${({ runs }) => html`<${Board} runs=${runs} parameters=${parameters} />`}<//>`
}

function Board({ runs, parameters }) {
  const [query, change] = useQuery(['leaderboard'], parameters)
  const kinds = [...new Set(runs.map(({ kind }) => kind))]
  const kind = query.kind ?? mostOf(runs.map(run => run.kind))
  const ofKind = useMemo(() => runs.filter(run => run.kind === kind), [runs, kind])
  const measures = useMemo(() => measuresOf(ofKind), [ofKind])
  const chosen = useMemo(() => chosenOf(measures, query.tasks), [measures, query.tasks])
  const by = chosen.find(({ key }) => key === query.by) ?? chosen[0]
  const least = Number(query.n) || 0
  const shown = useMemo(() => ofKind.filter(run => matches(run, query.q) && chosen.some(({ task, metric }) => (entryOf(run, task, metric)?.n ?? -1) >= least)), [ofKind, query.q, chosen, least])
  if (!runs.length) return html`<p class="empty">No run has finished.</p>`
  return html`
    <search class="filters">
      <label>Filter <input type="search" value=${query.q ?? ''} placeholder="model or folder" onInput=${event => change({ q: event.target.value })} /></label>
      ${kinds.length > 1 && html`<label>Kind <select value=${kind} onChange=${event => change({ kind: event.target.value, tasks: '', by: '' })}>${kinds.map(one => html`<option>${one}</option>`)}</select></label>`}
      <label>Rank by <select value=${by?.key} onChange=${event => change({ by: event.target.value })}>${chosen.map(({ key, said }) => html`<option value=${key}>${said}</option>`)}</select></label>
      <label>Fewest examples <input class="small-number" type="number" min="0" step="1" value=${query.n ?? ''} onInput=${event => change({ n: event.target.value })} /></label>
      <span class="counted" role="status">${count(shown.length)} of ${count(runs.length)} runs</span>
    </search>
    <${TaskChoice} measures=${measures} chosen=${chosen} change=${change} />
    ${by && html`<${Ranking} key=${by.key} runs=${shown} measures=${chosen} by=${by} query=${query} change=${change} />`}`
}

// The most frequent value.
function mostOf(values) {
  const counts = new Map()
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1)
  return [...counts].reduce((most, one) => (one[1] > most[1] ? one : most), [undefined, 0])[0]
}

const matches = ({ label, slug, model }, q) => !q || q.toLowerCase().split(/\s+/).every(word => `${label} ${slug} ${model}`.toLowerCase().includes(word))

const entryOf = (run, task, metric) => run.tasks[task]?.results[metric]

// Tasks and metrics of the runs, the most frequent first. Of some, such as sizes of biases, less is better.
function measuresOf(runs) {
  const found = new Map()
  for (const run of runs) {
    for (const [task, one] of Object.entries(run.tasks)) {
      for (const metric of Object.keys(one.results)) {
        const key = `${task}/${metric}`
        const isShown = one.shown.includes(metric)
        if (!found.has(key)) found.set(key, { key, task, metric, label: one.label, said: `${one.label}: ${words(metric)}`, kind: one.kind, falls: one.kind === 'bias' || one.best === 0, isShown, runs: 0 })
        found.get(key).runs += 1
      }
    }
  }
  return [...found.values()].sort((one, other) => other.isShown - one.isShown || other.runs - one.runs)
}

function chosenOf(measures, said) {
  const keys = said?.split(',').map(decodeURIComponent)
  return keys ? measures.filter(({ key }) => keys.includes(key)) : measures.filter(({ isShown }) => isShown).slice(0, MOST_TASKS)
}

function TaskChoice({ measures, chosen, change }) {
  const keys = chosen.map(({ key }) => key)
  const turn = (key, is) => change({ tasks: (is ? [...keys, key] : keys.filter(one => one !== key)).map(encodeURIComponent).join(',') })
  return html`<details class="choice"><summary>Tasks and metrics <span>${keys.length} of ${measures.length} shown</span></summary>
    <fieldset><legend class="unseen">Tasks and metrics that the table shows</legend>${measures.map(({ key, said, runs }) => html`
      <label class="tick"><input type="checkbox" checked=${keys.includes(key)} disabled=${keys.length === 1 && keys[0] === key} onChange=${event => turn(key, event.target.checked)} /> ${said} <small>${count(runs)}</small></label>`)}</fieldset></details>`
}

// Runs with the largest set of questions of the ranked task are ranked. Others are shown below them, and say so.
function Ranking({ runs, measures, by, query, change }) {
  const { rows, different } = useMemo(() => ranked(runs, by), [runs, by])
  const largest = useMemo(() => new Map(measures.map(({ key, task, metric }) => [key, largestOf(runs, task, metric)])), [runs, measures])
  const chosen = (query.chosen ?? '').split(',').filter(Boolean)
  const choose = (slug, is) => change({ chosen: (is ? [...chosen, slug] : chosen.filter(one => one !== slug)).join(',') })
  const columns = useMemo(() => columnsOf(measures, by, largest, chosen, choose), [measures, by, largest, query])
  const [baseline, ...others] = chosen
  return html`
    <p class="intro">Ranked by ${by.said}. Runs whose intervals overlap are not told apart: the rank is the range of places that a run may have. A comparison tests two runs on the same questions, and finds smaller differences.${different > 0 && ` ≠ marks results on fewer or other questions (another version or part of the data, another prompt, another limit). ${different === 1 ? 'One run has' : `${count(different)} runs have`} such a result in ${by.label} and no rank.`}</p>
    ${others.length > 0 && html`<aside class="selection" aria-label="Comparison"><span>${chosen.length} runs chosen</span><span class="actions"><a class="primary" href=${link(['compare', baseline, others.join(',')])}>Compare them</a> <button type="button" class="quiet" onClick=${() => change({ chosen: '' })}>Clear</button></span></aside>`}
    <${Table} caption=${`Leaderboard by ${by.said}`} isQuiet name="leaderboard" rows=${rows} columns=${columns} rowKey=${({ run }) => run.slug} size=${A_PAGE}
      sorted=${{ key: 'rank', falls: false }} empty="No run matches the filter." />`
}

const largestOf = (runs, task, metric) => largestSet(runs.filter(run => entryOf(run, task, metric)).map(run => ({ data: run.tasks[task].data, n: entryOf(run, task, metric).n })))

function ranked(runs, { task, metric, falls }) {
  const having = runs.filter(run => entryOf(run, task, metric))
  const same = having.filter(run => run.tasks[task].data === largestOf(runs, task, metric).data)
  const places = new Map(ranks(same.map(run => entryOf(run, task, metric)), falls).map((rank, place) => [same[place].slug, rank]))
  const rows = runs.map(run => ({ run, rank: places.get(run.slug), isRanked: places.has(run.slug), ...entryOf(run, task, metric) }))
  return { rows: rows.sort((one, other) => beforeInRanking(one, other, falls)), different: having.length - same.length }
}

const rankText = rank => (rank ? (rank.first === rank.last ? `${rank.first}` : `${rank.first}–${rank.last}`) : '')

function columnsOf(measures, by, largest, chosen, choose) {
  const fixed = [
    {
      key: 'choose',
      label: 'Choose',
      isFixed: true,
      style: 'choose',
      cell: ({ run: { slug, label } }) => html`<input type="checkbox" checked=${chosen.includes(slug)} disabled=${!chosen.includes(slug) && chosen.length >= MOST_COMPARED} aria-label=${`Compare ${label} (${slug})`} onChange=${event => choose(slug, event.target.checked)} />`,
    },
    {
      key: 'label',
      label: 'run',
      value: ({ run }) => run.label,
      cell: ({ run }) => html`<a href=${link(['run', run.slug])}>${run.label}</a>${!run.label.includes(run.slug) && html`<small>${run.slug}</small>`}`,
      parts: { slug: ({ run }) => run.slug, model: ({ run }) => run.model },
      style: 'name',
    },
    { key: 'rank', label: 'rank', isNumber: true, value: ({ rank }) => rank && rank.first + rank.last, text: ({ rank }) => rankText(rank), isForReading: true },
  ]
  const found = measures.map(measure => measureColumn(measure, measure.key === by.key, largest.get(measure.key)))
  return [...fixed, ...found, { key: 'started', label: 'started', value: ({ run }) => run.started, cell: ({ run }) => html`<${Moment} value=${run.started} />` }]
}

function measureColumn({ key, task, metric, label, kind, said }, isRanking, largest) {
  const get = ({ run }) => entryOf(run, task, metric)
  const isPercent = isShare(kind)
  const isOther = ({ run }) => run.tasks[task].data !== largest.data
  const otherText = entry => (entry.n < largest.n ? `${count(entry.n)} of ${count(largest.n)} examples: not comparable` : 'Other questions: not comparable')
  const to = run => (kind === 'bias' ? link(['bias', run.slug]) : link(['questions', run.slug, task]))
  return {
    key,
    label: said,
    heading: html`${label}<small>${words(metric)}</small>`,
    isNumber: true,
    value: row => get(row)?.value,
    text: row => (get(row) ? `${numberText(get(row).value, isPercent)} (${intervalText(get(row), isPercent)})${isOther(row) ? ' ≠' : ''}` : ''),
    cell: row => get(row) && html`<a href=${to(row.run)} title=${`${count(get(row).n)} examples`}><b>${numberText(get(row).value, isPercent)}</b></a>${isOther(row) && html` <abbr title=${otherText(get(row))}>≠</abbr>${get(row).n < largest.n && html` <small>n ${count(get(row).n)}</small>`}`}
      <small class="below">${intervalText(get(row), isPercent)}</small>${isRanking && isPercent && html`<${Bar} ...${get(row)} />`}`,
    parts: { [`${key}/low`]: row => get(row)?.low, [`${key}/high`]: row => get(row)?.high, [`${key}/n`]: row => get(row)?.n },
  }
}
