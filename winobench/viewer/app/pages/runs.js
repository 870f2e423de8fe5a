// All runs, live; up to six of them are chosen for a comparison.

import { count, html, link, Loaded, Moment, useKeys, useLive, useMemo, useQuery, useTitle } from '../base.js'
import { metricText, NumberText, statusText } from '../numbers.js'
import * as source from '../source.js'
import { Bar, Table } from '../tables.js'

const WHILE_RUNNING = 2_000
const OTHERWISE = 10_000
const A_PAGE = 100
export const MOST_COMPARED = 6

export default function Runs({ parameters }) {
  useTitle('Runs')
  const [query, change] = useQuery([''], parameters)
  const state = useLive(source.runs, pace, [])
  const chosen = (query.chosen ?? '').split(',').filter(Boolean)
  const choose = (slug, is) => change({ chosen: (is ? [...chosen, slug] : chosen.filter(one => one !== slug)).join(',') })
  const columns = useMemo(() => [chooser(chosen, choose), ...COLUMNS], [query])
  useKeys({ x: { said: 'Choose the row for a comparison', act: chooseRow }, c: { said: 'Compare the chosen runs', act: () => document.querySelector('.selection .primary')?.click() } })
  return html`<h1>Runs</h1>
    <${Loaded} state=${state.value ? { value: state.value } : state} what="the runs">${({ runs }) => {
      const shown = runs.filter(run => matches(run, query))
      return html`
        ${state.error && html`<p class="problem" role="alert">${state.error.message} The list is the last one that it gave.</p>`}
        <${Filters} runs=${runs} query=${query} change=${change} shown=${shown.length} />
        <${Chosen} runs=${runs} chosen=${chosen} change=${change} />
        <${Table} caption="Runs" isQuiet isStacked name="runs" rows=${shown} rowKey=${({ slug }) => slug} columns=${columns} size=${A_PAGE}
          sorted=${{ key: 'updated', falls: true }} empty=${runs.length ? 'No run matches the filter.' : 'The folders hold no run yet.'} />`
    }}<//>`
}

const pace = answer => (answer.runs.some(({ status }) => status === 'running') ? WHILE_RUNNING : answer.isFixed ? undefined : OTHERWISE)

function chooseRow() {
  document.activeElement.closest('tr')?.querySelector('input[type="checkbox"]')?.click()
}

// Run -> the text that the filter looks into.
const searched = new WeakMap()

function matches(run, { q, kind, status }) {
  if (kind && run.kind !== kind) return false
  if (status && run.status !== status) return false
  if (!q) return true
  if (!searched.has(run)) searched.set(run, [run.label, run.slug, run.model, run.folder, run.kind, run.status, ...run.tasks].join(' ').toLowerCase())
  return q.toLowerCase().split(/\s+/).every(word => searched.get(run).includes(word))
}

const KINDS = { images: 'images', text: 'text', generated: 'generated images' }

function Filters({ runs, query, change, shown }) {
  const statuses = [...new Set(runs.map(({ status }) => status))].sort()
  return html`<search class="filters">
    <label>Filter <input type="search" value=${query.q ?? ''} placeholder="model, task or folder" onInput=${event => change({ q: event.target.value })} /></label>
    <label>Kind <select value=${query.kind ?? ''} onChange=${event => change({ kind: event.target.value })}>
      <option value="">all</option>${Object.entries(KINDS).map(([kind, said]) => html`<option value=${kind}>${said}</option>`)}</select></label>
    <label>Status <select value=${query.status ?? ''} onChange=${event => change({ status: event.target.value })}>
      <option value="">all</option>${statuses.map(status => html`<option>${status}</option>`)}</select></label>
    <span class="counted" role="status">${shown === runs.length ? `${count(runs.length)} runs` : `${count(shown)} of ${count(runs.length)} runs`}</span>
  </search>`
}

function chooser(chosen, choose) {
  return {
    key: 'choose',
    label: 'Choose',
    isFixed: true,
    style: 'choose',
    cell: ({ slug, label, status, kind }) => {
      const is = chosen.includes(slug)
      const cannot = status !== 'finished' || kind === 'generated' || (!is && chosen.length >= MOST_COMPARED)
      return html`<input type="checkbox" checked=${is} disabled=${cannot && !is} aria-label=${`Compare ${label} (${slug})`} onChange=${event => choose(slug, event.target.checked)} />`
    },
  }
}

const first = ({ headline }) => headline[0] ?? {}
export const addressOf = ({ slug, kind }) => link([kind === 'generated' ? 'images' : 'run', slug])

const COLUMNS = [
  {
    key: 'label',
    label: 'run',
    value: run => run.label,
    cell: run => html`<a href=${addressOf(run)}>${run.label}</a>${!run.label.includes(run.slug) && html`<small>${run.slug}</small>`}`,
    parts: { slug: run => run.slug, model: run => run.model },
    style: 'name',
  },
  { key: 'status', label: 'status', cell: run => html`<${Status} run=${run} />`, style: 'status' },
  { key: 'first_task', label: 'first result', value: run => first(run).task, cell: run => (first(run).task ? metricText(first(run)) : run.kind === 'generated' && run.progress ? statusText(run.progress) : ''), style: 'first-result' },
  {
    key: 'first_value',
    label: 'value',
    heading: 'value, 95% interval',
    isNumber: true,
    value: run => first(run).value,
    text: run => first(run).value ?? '',
    cell: run => first(run).task && html`<${NumberText} entry=${first(run)} isPercent=${first(run).unit === '%'} />`,
    parts: { low: run => first(run).low, high: run => first(run).high, chance: run => first(run).chance, n: run => first(run).n },
  },
  { key: 'bar', label: 'Interval', isFixed: true, cell: run => first(run).unit === '%' && html`<${Bar} ...${first(run)} />`, style: 'wide' },
  { key: 'kind', label: 'kind', style: 'minor', text: ({ kind }) => KINDS[kind] ?? kind },
  { key: 'tasks', label: 'tasks', value: run => run.tasks.length, cell: run => html`<span title=${run.tasks.join(', ')}>${count(run.tasks.length)}</span>`, isNumber: true, style: 'minor' },
  { key: 'started', label: 'started', style: 'moment minor', cell: ({ started }) => html`<${Moment} value=${started} />` },
  { key: 'updated', label: 'changed', style: 'moment', cell: ({ updated }) => html`<${Moment} value=${updated} />` },
]

export function Status({ run }) {
  const { status, reason, progress } = run
  return html`<span class=${`state ${status}`}>${status}</span>
    ${status !== 'finished' && progress?.total && html`<span class="progress"><progress max=${progress.total} value=${progress.done} aria-label=${`Progress of ${run.label}`} /> <small>${statusText(progress)}</small></span>`}
    ${reason && html`<small class="reason" title=${reason}>${reason}</small>`}`
}

function Chosen({ runs, chosen, change }) {
  const known = chosen.map(slug => runs.find(run => run.slug === slug)).filter(Boolean)
  if (!known.length) return html`<p class="hint">Choose two to six finished runs to compare them.</p>`
  const [baseline, ...others] = known
  const leads = slug => change({ chosen: [slug, ...chosen.filter(one => one !== slug)].join(',') })
  const isMixed = new Set(known.map(({ kind }) => kind)).size > 1
  return html`<aside class="selection" aria-label="Comparison">
    <label>Baseline <select value=${baseline.slug} onChange=${event => leads(event.target.value)}>${known.map(run => html`<option value=${run.slug}>${named(run)}</option>`)}</select></label>
    <span class="names">${others.length ? `against ${others.map(named).join(', ')}` : 'Choose at least one more run.'}${isMixed && ' Runs of text and of images share no task.'}</span>
    <span class="actions">
      ${others.length > 0 && html`<a class="primary" href=${link(['compare', baseline.slug, others.map(({ slug }) => slug).join(',')])}>Compare ${known.length} runs</a>`}
      <button type="button" class="quiet" onClick=${() => change({ chosen: '' })}>Clear</button>
    </span>
  </aside>`
}

const named = ({ label }) => label
